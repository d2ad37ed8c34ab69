# /// scenario
# summary = "a compiled function catches the RuntimeError of a tensor operator"
# tags = ["compile", "dynamo"]
# timeout = 60
# links = ["https://github.com/pytorch/pytorch/issues/148475"]
# expect = [{ torch = "<2.14", outcome = "fail" }]
# ///
import sys

import torch


def grow_or_sine(x):
    try:
        x.expand_as(torch.ones(2))  # fewer dimensions than x: an error
    except RuntimeError:
        return x.sin()
    return x.cos()


try:
    compiled = torch.compile(grow_or_sine, backend="eager")
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

x = torch.ones(2, 3)
result = compiled(x)
print(result)
torch.testing.assert_close(result, x.sin())
