# /// scenario
# summary = "a backward that AOTAutograd's cache holds is called under compiled autograd"
# tags = ["compile", "autograd", "cache"]
# timeout = 180
# on_request = true
# links = ["https://github.com/pytorch/pytorch/pull/151860"]
# [variants]
# runs = [2]
# [[expect]]
# torch = "==2.7.1"
# outcome = "fail"
# why = "such a backward cannot be compiled"
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
    from torch._dynamo.compiled_autograd import _enable as compiled_autograd

    backend = torch.compile(backend="eager")
except (AttributeError, ImportError, RuntimeError) as error:
    skip(f"no compiled autograd here: {error}")

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
x = torch.randn(4, 8)
model(x).sum().backward()
wanted = model[0].weight.grad.clone()
compiled = torch.compile(model)

model.zero_grad()
compiled(x).sum().backward()
torch.testing.assert_close(model[0].weight.grad, wanted)

model.zero_grad()
with compiled_autograd(backend):
    compiled(x).sum().backward()
torch.testing.assert_close(model[0].weight.grad, wanted)
