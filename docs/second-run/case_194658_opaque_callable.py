# https://github.com/pytorch/pytorch/pull/194658   (SCALE=2 in the first run, SCALE=3 in the second)
import os
import torch
from torch.utils.checkpoint import checkpoint

SCALE = [float(os.environ.get("SCALE", "2"))]

@torch._dynamo.allow_in_graph
def opaque(x):
    return x * SCALE[0]

def fn(x):
    return checkpoint(lambda y: opaque(y).sin(), x, use_reentrant=False)

x = torch.linspace(-1, 1, 16, requires_grad=True)
out = torch.compile(fn, fullgraph=True)(x)
want = (x * SCALE[0]).sin()
torch.testing.assert_close(out, want)
(g,) = torch.autograd.grad(out.sum(), x)
torch.testing.assert_close(g, torch.autograd.grad(want.sum(), x)[0])
print("ok")
