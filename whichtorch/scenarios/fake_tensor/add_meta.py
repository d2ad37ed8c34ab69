# /// scenario
# summary = "adding a meta tensor in place to a CPU tensor while tracing"
# tags = ["fake-tensor", "compile", "seed"]
# timeout = 120
# links = [
#   "https://github.com/pytorch/pytorch/issues/166626",
#   "https://github.com/pytorch/pytorch/pull/177524",
# ]
# expect = [
#   { variant = { level = "fake" }, torch = ">=2.1,<2.12", outcome = "fail" },
#   { variant = { level = "eager" }, torch = ">=2.1,<2.12", outcome = "fail" },
#   { variant = { level = "aot_eager" }, outcome = "fail", why = "the fix was for add_, this traces add" },
# ]
# [variants]
# level = ["fake", "eager", "aot_eager"]
# ///
import os
import sys

import torch

level = os.environ.get("WHICHTORCH_LEVEL", "fake")


def not_applicable(why):
    print(why, file=sys.stderr)
    sys.exit(125)


def add(target, other):
    return target.add_(other)


if level == "fake":
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        mode = FakeTensorMode(allow_non_fake_inputs=True)
    except TypeError as error:
        not_applicable(f"no such mode before 2.0: {error}")
    with mode:
        result = add(torch.ones(3, 4), torch.ones(3, 4, device="meta"))
else:
    try:
        compiled = torch.compile(add, backend=level)
    except (AttributeError, RuntimeError) as error:
        not_applicable(f"no torch.compile here: {error}")
    result = compiled(torch.ones(3, 4), torch.ones(3, 4, device="meta"))

print(level, "gives", tuple(result.shape), "on", result.device)
assert result.shape == (3, 4)
assert result.device.type == "cpu"
