#!/usr/bin/env python
# coding: utf-8

# In[1]:
import torch, random, math
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader

# In[2]:
random.seed(42)
torch.manual_seed(42)
torch.backends.cudnn.benchmark = True
N = 60
D_in, H, D_out = 7, 12, 3
lr = 1e-2
data = [(torch.randn(D_in), torch.randn(D_out)) for _ in range(N)]
print(len(data), data[0][0].shape)

# In[3]:
mean = sum([x for x, _ in data][1:], data[0][0]) / N
std = (sum([(x - mean) ** 2 for x, _ in data][1:], data[0][0]) / N) ** 0.5
normed = [((x - mean) / (std + 1e-6), y) for x, y in data]
train_set = normed[:48]
val_set = normed[48:]
train_loader = DataLoader(train_set, batch_size=16, shuffle=True)
val_loader = DataLoader(val_set, batch_size=len(val_set))

# In[4]:
w1 = nn.Parameter(torch.randn(D_in, H) * math.sqrt(2 / D_in))
b1 = nn.Parameter(torch.zeros(H))
w2 = nn.Parameter(torch.randn(H, D_out) * math.sqrt(2 / H))
b2 = nn.Parameter(torch.zeros(D_out))
params = [w1, b1, w2, b2]
opt = optim.SGD(params, lr=lr, momentum=0.9)
sched = optim.lr_scheduler.StepLR(opt, 10)


# In[5]:
def net(x):
    h = torch.relu(x @ w1 + b1)
    return h @ w2 + b2


# In[6]:
losses, val_losses = [], []
best, best_epoch = float("inf"), -1
for epoch in range(4):
    running = 0
    for x, y in train_loader:
        pred = net(x)
        loss = ((pred - y) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        running += loss.item()
    losses.append(running / len(train_loader))
    with torch.no_grad():
        for x, y in val_loader:
            val = ((net(x) - y) ** 2).mean().item()
            val_losses.append(val)
    if val_losses[-1] < best:
        best, best_epoch = val_losses[-1], epoch
    sched.step()
    print(f"{epoch:3d} {losses[-1]:.4f} {val_losses[-1]:.4f}")

# In[7]:
grid = torch.stack([torch.full((D_in,), i / 10) for i in range(11)])
out = net(grid)
top = out.argmax(-1)
print(top.shape, best, best_epoch)

# In[8]:
ensemble = []
for k in range(3):
    noise = [torch.randn_like(p) * 0.01 for p in params]
    shifted = [p + n for p, n in zip(params, noise)]
    a, b, c, d = shifted
    ensemble.append(torch.relu(grid @ a + b) @ c + d)
votes = torch.stack(ensemble).mean(0)
agree = (votes - out).abs().mean()
print("agreement", agree.item())
weights = torch.softmax(torch.stack([e.mean(0) for e in ensemble]), dim=0)
combined = torch.cat([weights, votes], dim=1)
print(combined.shape)
