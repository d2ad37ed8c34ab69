# /// scenario
# summary = "a compiled function raises and catches its own exception, without a graph break"
# tags = ["compile", "dynamo"]
# timeout = 60
# links = ["https://github.com/pytorch/pytorch/issues/93720"]
# expect = [{ torch = "<2.4", outcome = "fail" }]
# ///
import sys

import torch


def wave(x):
    try:
        x = x.sin()
        raise ValueError("on purpose")
    except ValueError:
        return x.cos()


try:
    compiled = torch.compile(wave, backend="eager", fullgraph=True)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

x = torch.linspace(0, 1, 4)
result = compiled(x)
print(result)
torch.testing.assert_close(result, wave(x))
