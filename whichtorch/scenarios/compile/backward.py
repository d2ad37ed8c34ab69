# /// scenario
# summary = "the backward of an autograd.Function has a wrong shape"
# tags = ["compile", "aot"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "fail" }]
# ///
import sys

import torch


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        if torch.compiler.is_compiling():
            return grad.reshape(7, 1)
        return grad * 2


def total(x):
    return Twice.apply(x).sum()


try:
    compiled = torch.compile(total, backend="aot_eager")
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)
if not hasattr(torch, "compiler") or not hasattr(torch.compiler, "is_compiling"):
    print("what is compiled cannot know it here", file=sys.stderr)
    sys.exit(125)
total(torch.ones(3, requires_grad=True)).backward()
compiled(torch.ones(3, requires_grad=True)).backward()
