"""Both workers of a loader want the lock that the training loop keeps while it waits for a batch of theirs."""

import torch
from torch.multiprocessing import get_context
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self, lock):
        self.lock = lock

    def __len__(self):
        return 8

    def __getitem__(self, index):
        with self.lock:
            return torch.full((2,), float(index))


if __name__ == "__main__":
    context = get_context("fork")
    cache = context.Lock()
    loader = DataLoader(Images(cache), num_workers=2, persistent_workers=True, multiprocessing_context=context)
    with cache:
        print(sum(batch.sum() for batch in loader))
