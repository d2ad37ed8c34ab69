# /// scenario
# summary = "a whole graph calls what Dynamo does not trace"
# tags = ["compile", "dynamo", "graph-break"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "fail" }]
# ///
import sys

import torch


def read(x):
    with open(__file__, "rb") as script:
        return x + len(script.read())


try:
    compiled = torch.compile(read, backend="eager", fullgraph=True)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

compiled(torch.ones(3))
