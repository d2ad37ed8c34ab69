# /// scenario
# summary = "a graph with autograd.grad in it comes from AOTAutograd's cache"
# tags = ["compile", "autograd", "cache"]
# timeout = 180
# on_request = true
# links = ["https://github.com/pytorch/pytorch/issues/154536"]
# [variants]
# runs = [2]
# [[expect]]
# torch = "==2.7.1"
# outcome = "fail"
# why = "what the cache holds has no line of the script"
# ///
import os
import shutil
import sys

import torch


def gradient(x):
    (found,) = torch.autograd.grad(x.sum(), x)
    return found


if not shutil.which(os.environ.get("CXX", "g++")):
    print("inductor needs a C++ compiler", file=sys.stderr)
    sys.exit(125)
try:
    compiled = torch.compile(gradient)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

x = torch.randn(10, 10, requires_grad=True)
torch.testing.assert_close(compiled(x), torch.ones(10, 10))
