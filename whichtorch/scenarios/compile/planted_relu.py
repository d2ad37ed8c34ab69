# /// scenario
# summary = "Inductor's relu has a bug that torch can plant"
# tags = ["compile", "inductor"]
# timeout = 120
# on_request = true
# expect = [
#   { torch = "<2.3", variant = { bug = "run" }, outcome = "crash" },
#   { outcome = "fail" },
# ]
# [variants]
# bug = ["accuracy", "compile", "run"]
# ///
import os
import shutil
import sys

import torch

BUGS = {"accuracy": "accuracy", "compile": "compile_error", "run": "runtime_error"}


def clip(x):
    return torch.relu(x) + 1


if not shutil.which(os.environ.get("CXX", "g++")):
    print("inductor needs a C++ compiler", file=sys.stderr)
    sys.exit(125)
try:
    compiled = torch.compile(clip)
except (AttributeError, RuntimeError) as error:
    print("no torch.compile here:", error, file=sys.stderr)
    sys.exit(125)

import torch._inductor.config

if not hasattr(torch._inductor.config.cpp, "inject_relu_bug_TESTING_ONLY"):
    print("no bug can be planted here", file=sys.stderr)
    sys.exit(125)
torch._inductor.config.cpp.inject_relu_bug_TESTING_ONLY = BUGS[os.environ.get("WHICHTORCH_BUG", "accuracy")]

x = torch.linspace(-1, 1, 32)
torch.testing.assert_close(compiled(x), clip(x))
