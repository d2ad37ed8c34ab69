# /// scenario
# summary = "a Hermite polynomial of a huge degree is computed term by term"
# tags = ["eager", "special"]
# timeout = 30
# links = [
#   "https://github.com/pytorch/pytorch/issues/79528",
#   "https://github.com/pytorch/pytorch/pull/141955",
# ]
# expect = [{ torch = "<2.7", outcome = "hang" }]
# ///
import sys

import torch

hermite = getattr(torch.special, "hermite_polynomial_h", None)
if hermite is None:
    print("torch.special.hermite_polynomial_h is not in this release", file=sys.stderr)
    sys.exit(125)

result = hermite(torch.tensor([0.5, 1.25]), torch.tensor([2.0**40, 2.0**40]))
print(result)
assert result.shape == (2,)
