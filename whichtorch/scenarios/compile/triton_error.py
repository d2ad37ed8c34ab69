# /// scenario
# summary = "Triton refuses a kernel"
# tags = ["compile", "cuda"]
# timeout = 120
# on_request = true
# expect = [{ outcome = "fail" }]
# ///
import sys

import torch

if not torch.cuda.is_available():
    print("no GPU here", file=sys.stderr)
    sys.exit(125)
try:
    import triton
    import triton.language as tl
except ImportError as error:
    print("no Triton here:", error, file=sys.stderr)
    sys.exit(125)


@triton.jit
def add(pointer, count: tl.constexpr):
    positions = tl.arange(0, count)  # Triton wants a power of two
    tl.store(pointer + positions, 1.0)


add[(1,)](torch.zeros(8, device="cuda"), 6)
