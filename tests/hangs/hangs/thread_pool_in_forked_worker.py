"""A worker of a loader hands its files to a pool of threads, of which it has only a copy without threads."""

from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, Dataset

readers = ThreadPoolExecutor(2)


def read(index):
    return torch.full((2,), float(index))


class Files(Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return readers.submit(read, index).result()


if __name__ == "__main__":
    files = Files()
    print([files[index].sum() for index in range(4)])
    for batch in DataLoader(files, num_workers=1, multiprocessing_context="fork"):
        print(batch)
