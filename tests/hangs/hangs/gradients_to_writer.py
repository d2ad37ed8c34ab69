"""A hook puts gradients into a bounded queue whose reader has ended with an exception."""

import queue
import threading

import torch

gradients = queue.Queue(maxsize=2)


def write():
    with open("/dev/full", "w", buffering=1) as log:
        while True:
            log.write(f"{gradients.get()}\n")


threading.Thread(target=write, name="gradient-writer", daemon=True).start()
model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(8)))
for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(lambda p: gradients.put(p.grad.norm()))
model(torch.ones(2, 4)).sum().backward()
