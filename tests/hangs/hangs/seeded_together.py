"""Each worker waits at its start for the others, at a barrier of one more than there are workers."""

import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 6

    def __getitem__(self, index):
        return index * index


context = mp.get_context("fork")
gate = context.Barrier(3)


def prepare(worker):
    torch.manual_seed(worker)
    gate.wait()


loader = DataLoader(Squares(), num_workers=2, worker_init_fn=prepare, multiprocessing_context=context)
total = sum(int(batch) for batch in loader)
print(total)
