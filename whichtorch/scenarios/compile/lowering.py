# /// scenario
# summary = "Inductor's lowering of a custom operator raises"
# tags = ["compile", "inductor"]
# timeout = 120
# on_request = true
# expect = [{ outcome = "fail" }]
# ///
import sys

import torch


def lower(x):
    raise NotImplementedError("no such layout")


def scale(x):
    return torch.ops.whichtorch.twice(x) + 1


try:
    compiled = torch.compile(scale)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)
from torch._inductor.lowering import register_lowering

library = torch.library.Library("whichtorch", "DEF")
library.define("twice(Tensor x) -> Tensor")
library.impl("twice", lambda x: x * 2, "CPU")
library.impl("twice", lambda x: torch.empty_like(x), "Meta")
register_lowering(torch.ops.whichtorch.twice)(lower)

compiled(torch.ones(3))
