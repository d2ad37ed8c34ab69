"""A thread compiles and wants the weights' lock; the main thread has that lock, and wants to compile."""

import threading

import torch

weights = threading.RLock()
is_compiling = threading.Event()


def careful(graph, inputs):
    is_compiling.set()
    with weights:
        return graph.forward


@torch.compile(backend=careful)
def forward(x):
    return x.relu() + 1


@torch.compile(backend="eager")
def update(x):
    return x * 0.9


warmup = threading.Thread(target=forward, args=(torch.ones(2),), name="warmup")
with weights:
    warmup.start()
    is_compiling.wait()
    update(torch.ones(2))
warmup.join()
