# /// scenario
# summary = "a custom operator's fake kernel has another shape than its real one"
# tags = ["compile", "inductor", "fake"]
# timeout = 120
# on_request = true
# expect = [{ torch = ">=2.7", outcome = "fail", why = "what comes out of it is compared with what was announced" }]
# ///
import os
import shutil
import sys

import torch


def scale(x):
    return torch.ops.whichtorch.rows_twice(x) + 1


if not shutil.which(os.environ.get("CXX", "g++")):
    print("inductor needs a C++ compiler", file=sys.stderr)
    sys.exit(125)
try:
    compiled = torch.compile(scale)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

library = torch.library.Library("whichtorch", "DEF")
library.define("rows_twice(Tensor x) -> Tensor")
library.impl("rows_twice", lambda x: torch.cat([x, x]), "CPU")
library.impl("rows_twice", lambda x: torch.empty_like(x), "Meta")

result = compiled(torch.ones(4, 3))
assert result.shape == (8, 3), "shape {}".format(tuple(result.shape))
