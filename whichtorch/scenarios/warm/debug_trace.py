# /// scenario
# summary = "a graph that comes from a cache is written to no debug folder"
# tags = ["compile", "inductor", "cache"]
# timeout = 180
# on_request = true
# links = ["https://github.com/pytorch/pytorch/issues/152374"]
# [variants]
# runs = [2]
# [[expect]]
# torch = ">=2.5"
# outcome = "fail"
# why = "what is served from Inductor's FX graph cache is not traced"
# ///
import os
import shutil
import sys
from pathlib import Path

import torch

if not shutil.which(os.environ.get("CXX", "g++")):
    print("inductor needs a C++ compiler", file=sys.stderr)
    sys.exit(125)
folder = Path.cwd() / f"debug_{os.getpid()}"
try:
    import torch._inductor.config

    torch._inductor.config.trace.enabled = True
    torch._dynamo.config.debug_dir_root = str(folder)
    compiled = torch.compile(lambda x: x.sin() + 1)
except (AttributeError, ImportError, RuntimeError) as error:
    print("no traces of inductor here:", error, file=sys.stderr)
    sys.exit(125)

compiled(torch.randn(8))
found = [path.name for path in folder.rglob("*.py")]
print("the debug folder has", sorted(found))
assert "output_code.py" in found, "inductor wrote no output_code.py"
