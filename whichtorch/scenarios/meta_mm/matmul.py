# /// scenario
# summary = "matmul of a 3D and a 2D meta tensor, which folds into one mm"
# tags = ["meta", "seed"]
# timeout = 60
# conditions = [{ op = "aten::mm", under = "aten::matmul", keys = ["Meta", "AutogradMeta"] }]
# [variants]
# grad = ["on", "off"]
# ///
import os

import torch

left = torch.empty(2, 4, 16, device="meta")
right = torch.empty(16, 8, device="meta")

with torch.set_grad_enabled(os.environ.get("WHICHTORCH_GRAD", "on") == "on"):
    product = torch.matmul(left, right)

print("matmul gives", tuple(product.shape), "on", product.device)
assert product.shape == (2, 4, 8)
assert product.device.type == "meta"
