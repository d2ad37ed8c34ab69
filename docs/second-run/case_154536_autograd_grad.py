# https://github.com/pytorch/pytorch/issues/154536
import torch


@torch.compile
def fn(x: torch.Tensor):
    (x_grad,) = torch.autograd.grad(x.sum(), x)
    return x_grad


x = torch.randn(10, 10, requires_grad=True)
out = fn(x)
torch.testing.assert_close(out, torch.ones(10, 10))
print("ok")
