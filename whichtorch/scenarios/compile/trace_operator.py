# /// scenario
# summary = "an operator refuses its arguments while it is traced"
# tags = ["compile", "dynamo", "fake"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "fail" }]
# ///
import sys

import torch


def multiply(a, b):
    return torch.mm(a, b)


try:
    compiled = torch.compile(multiply, backend="eager", fullgraph=True)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

compiled(torch.ones(3, 4), torch.ones(3, 4))
