"""Saved tensors are brought back by the pool of one worker in which backward itself runs."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch.autograd.graph import saved_tensors_hooks

pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="offload")


def pack(tensor):
    return tensor.clone()


def unpack(tensor):
    return pool.submit(tensor.clone).result()


def train(x):
    with saved_tensors_hooks(pack, unpack):
        loss = (x.exp() * x).sum()
    loss.backward()
    return x.grad


print(pool.submit(train, torch.ones(3, requires_grad=True)).result())
