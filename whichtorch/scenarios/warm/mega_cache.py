# /// scenario
# summary = "saved cache artifacts are loaded before anything else of the compiler is imported"
# tags = ["compile", "cache"]
# timeout = 180
# on_request = true
# links = ["https://github.com/pytorch/pytorch/issues/156813", "https://github.com/pytorch/pytorch/pull/157205"]
# [variants]
# runs = [2]
# [[expect]]
# torch = ">=2.7,<2.8"
# outcome = "fail"
# why = "modules that import each other"
# ///
import os
import shutil
import sys
from pathlib import Path

import torch


def skip(why):
    print(why, file=sys.stderr)
    sys.exit(125)


if not shutil.which(os.environ.get("CXX", "g++")):
    skip("inductor needs a C++ compiler")
if not hasattr(getattr(torch, "compiler", None), "save_cache_artifacts"):
    skip("no saved cache artifacts here")

file = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "."), "artifacts")
if file.exists():
    print("loaded", torch.compiler.load_cache_artifacts(file.read_bytes()))


@torch.compile
def product(x, y):
    return (x.sin() @ y).relu()


x, y = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8)
got = product(x, y)
got.sum().backward()
torch.testing.assert_close(got, (x.sin() @ y).relu())
if not file.exists():
    artifacts, _ = torch.compiler.save_cache_artifacts()
    file.write_bytes(artifacts)
