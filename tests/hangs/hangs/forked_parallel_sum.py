"""A forked child sums a large tensor with OpenMP, whose threads its parent had started before the fork."""

import os

import torch

torch.set_num_threads(2)
data = torch.randn(4_000_000)
print(data.exp().sum())


def in_child(function):
    child = os.fork()
    if child == 0:
        print(function())
        os._exit(0)
    return os.waitpid(child, 0)


in_child(lambda: data.exp().sum())
