"""A worker's collate function wants the lock that the training loop keeps while it waits for the batch."""

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, TensorDataset


class Padded:
    def __init__(self, lock):
        self.lock = lock

    def __call__(self, rows):
        self.lock.acquire()
        try:
            return torch.stack([row for (row,) in rows])
        finally:
            self.lock.release()


if __name__ == "__main__":
    context = mp.get_context("spawn")
    vocabulary = context.Lock()
    rows = TensorDataset(torch.randn(8, 3))
    loader = DataLoader(rows, 4, num_workers=1, collate_fn=Padded(vocabulary), multiprocessing_context=context)
    with vocabulary:
        batches = list(loader)
    print(len(batches))
