# /// scenario
# summary = "F.linear without a bias on meta tensors: 2D calls mm, 3D and 4D fold their input first"
# tags = ["meta", "seed"]
# timeout = 60
# conditions = [{ op = "aten::mm", under = "aten::matmul", keys = ["Meta", "AutogradMeta"] }]
# one_factor = true
# [variants]
# dims = [2, 3, 4]
# grad = ["on", "off"]
# ///
import os

import torch
import torch.nn.functional as F

dims = int(os.environ.get("WHICHTORCH_DIMS", "3"))
grad = os.environ.get("WHICHTORCH_GRAD", "on") == "on"

batch = {2: (4,), 3: (2, 4), 4: (2, 3, 4)}[dims]
inputs = torch.empty(*batch, 16, device="meta")
weight = torch.empty(8, 16, device="meta")

with torch.set_grad_enabled(grad):
    result = F.linear(inputs, weight)

print("linear gives", tuple(result.shape), "on", result.device)
assert result.shape == (*batch, 8)
assert result.device.type == "meta"
