"""A thread puts batches into a bounded queue, ahead of the training, which wants to see the end of the thread first."""

import queue
import threading

import torch
from torch.utils.data import DataLoader, TensorDataset


class Prefetcher:
    def __init__(self, loader, ahead):
        self.loader = loader
        self.batches = queue.Queue(ahead)
        self.thread = threading.Thread(target=self.fill, name="prefetcher")

    def fill(self):
        for batch in self.loader:
            self.batches.put(batch)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.thread.join()


data = TensorDataset(torch.randn(16, 2))
with Prefetcher(DataLoader(data, batch_size=2), ahead=3) as prefetcher:
    first = prefetcher.batches.get()
print(first)
