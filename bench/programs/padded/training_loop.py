import random

import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)


def make_batch(size, classes=4):
    x = torch.randn(size, 8)
    y = torch.tensor([float(random.randrange(classes)) for _ in range(size)])
    return x, y


def accuracy(logits, target):
    return (logits.argmax(dim=1) == target).float().mean().item()


def train_step(model, optimizer, loss_fn, batch):
    x, y = batch
    optimizer.zero_grad()
    logits = model(x)
    loss = loss_fn(logits, y)
    loss.backward()
    optimizer.step()
    return loss.item(), accuracy(logits, y)


model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
loss_fn = nn.CrossEntropyLoss(label_smoothing=0.1)
history = []
for epoch in range(3):
    model.train()
    for step in range(5):
        loss, score = train_step(model, optimizer, loss_fn, make_batch(16))
        history.append((loss, score))
        if step % 2 == 0:
            print(f"epoch {epoch} step {step}: loss {loss:.3f}, accuracy {score:.2f}")
print("best", min(history))
