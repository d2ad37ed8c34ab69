# /// scenario
# summary = "a Python float that changes from call to call does not recompile every time"
# tags = ["compile", "dynamo", "recompilation"]
# timeout = 60
# links = [
#   "https://github.com/pytorch/pytorch/issues/107277",
#   "https://github.com/pytorch/pytorch/pull/138922",
# ]
# expect = [{ torch = "<2.6", outcome = "fail" }]
# ///
import sys

import torch

CALLS = 12
ENOUGH = 3  # the first value, the general case, and one to spare
compilations = []


def counting(graph, example_inputs):
    compilations.append(graph)
    return graph.forward


def scale(x, factor):
    return x * factor


try:
    compiled = torch.compile(scale, backend=counting)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

for call in range(CALLS):
    result = compiled(torch.ones(3), call + 0.25)
    assert result.tolist() == [call + 0.25] * 3

print(len(compilations), "compilations for", CALLS, "values")
assert 1 <= len(compilations) <= ENOUGH, "{} compilations for {} values".format(len(compilations), CALLS)
