# /// scenario
# summary = "a function is compiled in two parts, and only a counting backend tells"
# tags = ["compile", "dynamo", "graph-break"]
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


def scale(x):
    y = x + 1
    print("between")
    return y * 2


try:
    compiled = torch.compile(scale, backend=counting)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

assert compiled(torch.ones(3)).tolist() == [4.0] * 3
assert len(graphs) == 1, "{} graphs".format(len(graphs))
