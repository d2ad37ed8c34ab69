# Found while measuring #143144 (fix PR #143808): no seed, so the weights differ from run to run, as after another training epoch
import torch
import torch._inductor.config as config

config.freezing = True
config.max_autotune = True
config.max_autotune_gemm_backends = "CPP"
torch.set_num_threads(1)

class M(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.param = torch.nn.Parameter(torch.rand(196, 384))

    def forward(self, x):
        return x @ self.param

m = M().eval()
x = torch.randn(384, 196)
with torch.no_grad():
    expected = m(x)
    got = torch.compile(m, dynamic=True)(x)
torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
print("ok")
