# https://github.com/pytorch/pytorch/pull/151860 (compiled autograd on a warm AOTAutogradCache)
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
x = torch.randn(4, 8)

model(x).sum().backward()
want = model[0].weight.grad.clone()
model.zero_grad()

opt = torch.compile(model)

# one plain training step ...
opt(x).sum().backward()
torch.testing.assert_close(model[0].weight.grad, want)
model.zero_grad()

# ... then one under compiled autograd
with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")):
    opt(x).sum().backward()
torch.testing.assert_close(model[0].weight.grad, want)
print("ok")
