# /// scenario
# summary = "an operator in a C++ thread, while the thread that waits for it holds the GIL"
# tags = ["meta", "seed", "threads"]
# timeout = 60
# native = ["worker_thread.cpp"]
# one_factor = true
# conditions = [
#   { op = "aten::mm", thread = "other", variant = { op = "mm" } },
#   { op = "aten::mm", under = "aten::matmul", thread = "other", variant = { op = "matmul" } },
#   { op = "aten::mm", under = "aten::linear", thread = "other", variant = { op = "linear" } },
#   { op = "aten::add", thread = "other", variant = { op = "add" } },
#   { op = "aten::empty", thread = "other", variant = { op = "empty" } },
#   { op = "aten::mm", keys = ["Meta"], variant = { op = "mm", device = "meta" } },
# ]
# [variants]
# op = ["mm", "matmul", "linear", "add", "empty"]
# guard = ["none", "no_grad", "inference", "below_autograd"]
# gil = ["held", "released"]
# device = ["meta", "cpu"]
# [[expect]]
# config = "cpp-meta"
# outcome = "pass"
# [[expect]]
# variant = { device = "cpu" }
# outcome = "pass"
# [[expect]]
# variant = { gil = "released" }
# outcome = "pass"
# [[expect]]
# variant = { op = "empty" }
# outcome = "pass"
# [[expect]]
# outcome = "hang"
# why = "the Meta kernels of these operators are Python functions, which wait for the GIL"
# ///
# The GIL and the join make the deadlock, the Python-registered Meta kernel its second half: each variant
# takes one factor away or changes it, and passes where the factor was needed.
import importlib.util
import os
from pathlib import Path

import torch

op = os.environ.get("WHICHTORCH_OP", "mm")
guard = os.environ.get("WHICHTORCH_GUARD", "none")
gil = os.environ.get("WHICHTORCH_GIL", "held")
device = os.environ.get("WHICHTORCH_DEVICE", "meta")
NAME = "worker_thread"


def load():
    """Return the extension: the one that was built beforehand, or one built now."""
    built = os.environ.get("WHICHTORCH_NATIVE")
    if built is None:
        from torch.utils import cpp_extension

        return cpp_extension.load(NAME, [str(Path(__file__).with_suffix(".cpp"))])
    spec = importlib.util.spec_from_file_location(NAME, built)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


extension = load()
shapes = {"mm": ((4, 16), (16, 8)), "matmul": ((2, 4, 16), (16, 8)), "linear": ((2, 4, 16), (8, 16))}
left, right = (torch.ones(shape, device=device) for shape in shapes.get(op, ((4, 8), (4, 8))))
expected = {"mm": (4, 8), "matmul": (2, 4, 8), "linear": (2, 4, 8)}.get(op, (4, 8))
print(op, "in a thread, guard", guard, "GIL", gil, "on", device, flush=True)

result = extension.run_in_thread(op, guard, gil == "held", left, right)

print("gives", tuple(result.shape), "on", result.device)
assert result.shape == expected
assert result.device.type == device
assert result.dtype == left.dtype
assert result.is_inference() == (guard == "inference")
if device == "cpu" and op in shapes:
    assert bool((result == 16).all())
