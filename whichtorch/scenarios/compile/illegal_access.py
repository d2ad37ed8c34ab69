# /// scenario
# summary = "a Triton kernel writes where it may not"
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
def write_far(pointer, offset):
    tl.store(pointer + offset, 1.0)


x = torch.zeros(8, device="cuda")
write_far[(1,)](x, 1 << 40)
torch.cuda.synchronize()
