"""The only worker has been stopped while it read a sample; the loop waits for its batch."""

import os
import signal

from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        if index == 5:
            os.kill(os.getpid(), signal.SIGSTOP)
        return index


def epoch(loader):
    return [int(image) for image in loader]


print(epoch(DataLoader(Images(), num_workers=1, persistent_workers=True)))
