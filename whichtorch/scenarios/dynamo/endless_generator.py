# /// scenario
# summary = "zip stops at the shorter side, though the other is a generator that never ends"
# tags = ["compile", "dynamo"]
# timeout = 60
# links = ["https://github.com/pytorch/pytorch/issues/133879"]
# expect = [{ torch = "<2.5", outcome = "hang" }]
# ///
import sys

import torch


def count_up():
    number = 0
    while True:
        yield number
        number += 1


def scale(x):
    for factor, number in zip((1.0, 2.0, 4.0), count_up()):
        x = x * factor + number
    return x


try:
    compiled = torch.compile(scale, backend="eager")
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

result = compiled(torch.ones(3))
print(result)
assert result.tolist() == scale(torch.ones(3)).tolist()
