# /// scenario
# summary = "a function that is traced as one call changes between runs, inside a checkpoint"
# tags = ["compile", "accuracy", "cache"]
# timeout = 180
# on_request = true
# links = ["https://github.com/pytorch/pytorch/pull/194658"]
# [variants]
# runs = [2]
# SCALE = ["2,3"]
# [[expect]]
# torch = "==2.15.0"
# outcome = "fail"
# why = "AOTAutograd's cache does not see what the function reads: wrong numbers"
# ///
import os
import shutil
import sys

import torch
from torch.utils.checkpoint import checkpoint

SCALE = [float(os.environ.get("SCALE", "2"))]


def skip(why):
    print(why, file=sys.stderr)
    sys.exit(125)


if not shutil.which(os.environ.get("CXX", "g++")):
    skip("inductor needs a C++ compiler")
try:
    from torch._dynamo import allow_in_graph

    compiler = torch.compile(fullgraph=True)
except (AttributeError, ImportError, RuntimeError) as error:
    skip(f"no torch.compile here: {error}")


@allow_in_graph
def scaled(x):
    return x * SCALE[0]


def checkpointed(x):
    return checkpoint(lambda y: scaled(y).sin(), x, use_reentrant=False)


x = torch.linspace(-1, 1, 16, requires_grad=True)
wanted = (x * SCALE[0]).sin()
got = compiler(checkpointed)(x)
print("scaled by", SCALE[0], "the sum is", got.sum().item(), "and should be", wanted.sum().item())
torch.testing.assert_close(got, wanted)
got.sum().backward()  # the cache gets an entry once there is a backward
slope = SCALE[0] * torch.cos(x * SCALE[0])
torch.testing.assert_close(x.grad, slope)
