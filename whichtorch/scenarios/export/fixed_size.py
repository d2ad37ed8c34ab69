# /// scenario
# summary = "a size that is to be dynamic is fixed by the module"
# tags = ["export"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "fail" }]
# [variants]
# mode = ["strict", "non_strict"]
# ///
import inspect
import os
import sys

import torch

try:
    from torch.export import Dim, export
except ImportError as error:
    print("no torch.export here:", error, file=sys.stderr)
    sys.exit(125)

MODE = os.environ.get("WHICHTORCH_MODE", "strict")


class Pairs(torch.nn.Module):
    def forward(self, x):
        return x.reshape(4, 2) + 1


if MODE == "non_strict" and "strict" not in inspect.signature(export).parameters:
    print("there is one mode only", file=sys.stderr)
    sys.exit(125)
options = {"strict": MODE == "strict"} if "strict" in inspect.signature(export).parameters else {}
export(Pairs(), (torch.ones(8),), dynamic_shapes={"x": {0: Dim("n")}}, **options)
