# /// scenario
# summary = "a size changes from call to call, and no further compilation is allowed"
# tags = ["compile", "dynamo", "recompilation"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "fail" }]
# ///
import sys

import torch


def double(x):
    return x * 2


try:
    compiled = torch.compile(double, backend="eager", dynamic=False)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

config = torch._dynamo.config
for name in ("fail_on_recompile_limit_hit", "fail_on_cache_limit_hit"):
    if hasattr(config, name):
        setattr(config, name, True)
        break
else:
    print("a limit that is reached is no error here", file=sys.stderr)
    sys.exit(125)

for size in range(2, 20):
    compiled(torch.ones(size))
