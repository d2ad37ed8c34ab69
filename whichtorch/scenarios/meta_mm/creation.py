# /// scenario
# summary = "F.linear on 3D meta tensors that were made in different ways"
# tags = ["meta", "seed"]
# timeout = 60
# conditions = [{ op = "aten::mm", under = "aten::matmul", keys = ["Meta", "AutogradMeta"] }]
# [variants]
# made = ["context", "empty", "bfloat16", "requires_grad"]
# ///
import os
import sys

import torch
import torch.nn.functional as F

made = os.environ.get("WHICHTORCH_MADE", "context")

if made == "context":
    if not hasattr(torch.device, "__enter__"):
        print("torch.device is no context manager before 2.0", file=sys.stderr)
        sys.exit(125)
    with torch.device("meta"):
        inputs, weight = torch.randn(2, 4, 16), torch.randn(16, 16)
else:
    options = {
        "empty": {},
        "bfloat16": {"dtype": torch.bfloat16},
        "requires_grad": {"requires_grad": True},
    }[made]
    inputs = torch.empty(2, 4, 16, device="meta", **options)
    weight = torch.empty(16, 16, device="meta", **options)

result = F.linear(inputs, weight)

print("linear gives", tuple(result.shape), result.dtype, "on", result.device)
assert result.shape == (2, 4, 16)
assert result.device.type == "meta"
assert result.dtype == weight.dtype
assert result.requires_grad == (made == "requires_grad")
