# /// scenario
# summary = "a whole graph branches on the values of a tensor"
# tags = ["compile", "dynamo", "graph-break"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "fail" }]
# ///
import sys

import torch


def step(x):
    if x.sum() > 0:
        return x + 1
    return x - 1


try:
    compiled = torch.compile(step, backend="eager", fullgraph=True)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

compiled(torch.ones(3))
