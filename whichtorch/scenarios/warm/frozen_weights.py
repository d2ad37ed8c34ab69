# /// scenario
# summary = "a frozen model is compiled again after its weights have changed"
# tags = ["compile", "inductor", "accuracy", "cache"]
# timeout = 180
# on_request = true
# links = ["https://github.com/pytorch/pytorch/issues/143144", "https://github.com/pytorch/pytorch/pull/143808"]
# [variants]
# runs = [2]
# [[expect]]
# torch = ">=2.6,<2.9"
# outcome = "fail"
# why = "Inductor's FX graph cache serves the packed weights of the run before, or none"
# ///
import os
import shutil
import sys

import torch


def skip(why):
    print(why, file=sys.stderr)
    sys.exit(125)


if not shutil.which(os.environ.get("CXX", "g++")):
    skip("inductor needs a C++ compiler")
try:
    import torch._inductor.config as config

    config.freezing = True
    config.max_autotune = True
    config.max_autotune_gemm_backends = "CPP"
except (AttributeError, ImportError) as error:
    skip(f"no freezing or C++ templates here: {error}")


class Product(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(196, 384))  # without a seed: others in each run

    def forward(self, x):
        return x @ self.weight


torch.set_num_threads(1)
model = Product().eval()
x = torch.randn(384, 196)
with torch.no_grad():
    wanted = model(x)
    got = torch.compile(model, dynamic=True)(x)
print("the sum is", got.sum().item(), "and should be", wanted.sum().item())
torch.testing.assert_close(got, wanted, rtol=1e-4, atol=1e-4)
