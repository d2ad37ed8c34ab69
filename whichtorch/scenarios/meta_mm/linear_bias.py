# /// scenario
# summary = "F.linear with a bias on meta tensors, recording a graph or not; goes through addmm instead"
# tags = ["meta", "seed"]
# timeout = 60
# conditions = [{ op = "aten::mm", under = "aten::matmul", keys = ["Meta", "AutogradMeta"] }]
# expect = [{ outcome = "vacuous", why = "mm is called by addmm, not by matmul" }]
# [variants]
# dims = [2, 3, 4]
# ///
# The condition is that of the hang: mm called by matmul. A bias makes linear call addmm, so a pass here
# says nothing about the hang: it is vacuous, which declaring the condition shows.
import os

import torch
import torch.nn.functional as F

dims = int(os.environ.get("WHICHTORCH_DIMS", "3"))

batch = {2: (4,), 3: (2, 4), 4: (2, 3, 4)}[dims]
inputs = torch.randn(*batch, 16, device="meta")
weight = torch.randn(16, 16, device="meta", requires_grad=True)
bias = torch.randn(16, device="meta", requires_grad=True)

recorded = F.linear(inputs, weight, bias)
with torch.no_grad():
    plain = F.linear(inputs, weight, bias)

print("linear gives", tuple(plain.shape), "on", plain.device)
for result in (recorded, plain):
    assert result.shape == (*batch, 16)
    assert result.device.type == "meta"
assert recorded.requires_grad and not plain.requires_grad
