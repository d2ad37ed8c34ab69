# /// scenario
# summary = "an integer argument compiles a function for each of its values"
# tags = ["compile", "dynamo", "recompilation"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "fail" }]
# ///
import sys

import torch

graphs = []


def counting(graph, example_inputs):
    graphs.append(graph)
    return graph.forward


def scale(x, factor):
    return x * factor


try:
    compiled = torch.compile(scale, backend=counting, dynamic=False)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

for factor in range(2, 6):
    assert compiled(torch.ones(3), factor).tolist() == [factor] * 3
assert len(graphs) == 1, "{} graphs".format(len(graphs))
