# /// scenario
# summary = "an index used twice, y[i] += y[i], adds once and not per use"
# tags = ["compile", "inductor", "accuracy"]
# timeout = 120
# on_request = true  # 30 CPU seconds in each release, and current releases pass
# links = ["https://github.com/pytorch/pytorch/issues/138908"]
# expect = [{ torch = ">=2.2,<2.7", outcome = "fail", why = "wrong numbers" }]
# ///
import os
import shutil
import sys

import torch


def double(x, y):
    i = x + 10
    y[i] += y[i]


if not shutil.which(os.environ.get("CXX", "g++")):
    print("inductor needs a C++ compiler", file=sys.stderr)
    sys.exit(125)
try:
    compiled = torch.compile(double, dynamic=True)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

x = torch.full((1, 2), -10)  # row 0, twice
wanted = torch.arange(1.0, 65.0).reshape(2, 32)
got = wanted.clone()
double(x, wanted)
try:
    compiled(x, got)
except Exception as error:
    if "No module named" not in str(error):
        raise
    print("inductor lacks what it needs here:", error, file=sys.stderr)  # setuptools
    sys.exit(125)
print("rows start with", got[:, 0].tolist(), "and should with", wanted[:, 0].tolist())
torch.testing.assert_close(got, wanted)
