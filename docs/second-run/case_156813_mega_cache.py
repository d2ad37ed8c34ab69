# https://github.com/pytorch/pytorch/issues/156813 (and #154463): load_cache_artifacts() as the first call after `import torch`
import os
import torch

PATH = "mega_cache.bin"

if os.path.exists(PATH):
    with open(PATH, "rb") as f:
        info = torch.compiler.load_cache_artifacts(f.read())
    assert info is not None, "load_cache_artifacts() could not read what save_cache_artifacts() wrote"
    print("loaded", info)

@torch.compile
def f(x, y):
    return (x.sin() @ y).relu()

x, y = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
out = f(x, y)
out.sum().backward()
torch.testing.assert_close(out, (x.sin() @ y).relu())

if not os.path.exists(PATH):
    artifacts = torch.compiler.save_cache_artifacts()
    assert artifacts is not None
    with open(PATH, "wb") as f:
        f.write(artifacts[0])
print("ok")
