# /// scenario
# summary = "native_channel_shuffle in zero groups divides by zero"
# tags = ["eager", "nn"]
# timeout = 30
# links = [
#   "https://github.com/pytorch/pytorch/issues/142453",
#   "https://github.com/pytorch/pytorch/issues/146787",
# ]
# expect = [{ torch = "<2.8", outcome = "crash" }]
# ///
import sys

import torch

images = torch.ones(1, 4, 4, 4)
try:
    shuffle = torch.ops.aten.native_channel_shuffle
    shuffle(images, 2)
except (AttributeError, NotImplementedError) as error:
    print("no such operator here:", error, file=sys.stderr)
    sys.exit(125)

try:
    shuffle(images, 0)
except RuntimeError as error:
    print("refused:", error)
else:
    print("accepted")
