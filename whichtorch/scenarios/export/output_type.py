# /// scenario
# summary = "a module returns what torch.export has no form for"
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
    from torch.export import export
except ImportError as error:
    print("no torch.export here:", error, file=sys.stderr)
    sys.exit(125)

MODE = os.environ.get("WHICHTORCH_MODE", "strict")


class Report:
    def __init__(self, total):
        self.total = total


class Reporting(torch.nn.Module):
    def forward(self, x):
        return Report(x.sum())


if MODE == "non_strict" and "strict" not in inspect.signature(export).parameters:
    print("there is one mode only", file=sys.stderr)
    sys.exit(125)
options = {"strict": MODE == "strict"} if "strict" in inspect.signature(export).parameters else {}
export(Reporting(), (torch.ones(3),), **options)
