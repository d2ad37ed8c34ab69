# a DataLoader with a timeout, and a worker that never answers
import threading

import torch
from torch.utils.data import DataLoader


class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        threading.Event().wait()


try:
    list(DataLoader(Items(), num_workers=1, timeout=13))
except RuntimeError:
    pass
