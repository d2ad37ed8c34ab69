"""Two threads have a permit of a semaphore each, and each wants a second one for what it calls."""

import threading
import time

import torch

slots = threading.BoundedSemaphore(2)


def normalize(batch):
    with slots:
        return batch / batch.norm()


def load(size):
    with slots:
        time.sleep(0.5)
        return normalize(torch.ones(size))


loaders = [threading.Thread(target=load, args=(size,), name=f"load-{size}") for size in (1, 2)]
for loader in loaders:
    loader.start()
for loader in loaders:
    loader.join()
