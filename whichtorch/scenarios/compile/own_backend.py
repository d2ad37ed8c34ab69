# /// scenario
# summary = "a backend of the script's own raises"
# tags = ["compile", "backend"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "fail" }]
# ///
import sys

import torch


def refusing(graph, example_inputs):
    raise ValueError("this backend lowers nothing")


def scale(x):
    return torch.sin(x) * 2


try:
    compiled = torch.compile(scale, backend=refusing)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

compiled(torch.ones(3))
