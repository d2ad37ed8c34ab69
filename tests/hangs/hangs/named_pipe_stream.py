"""A worker opens a named pipe that no program writes to."""

import os
import tempfile

from torch.utils.data import DataLoader, IterableDataset


class Lines(IterableDataset):
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        with open(self.path) as stream:
            yield from stream


path = os.path.join(tempfile.mkdtemp(), "sentences")
os.mkfifo(path)
iterator = iter(DataLoader(Lines(path), num_workers=1))
print(next(iterator))
