"""A job of torchrun: a worker of one rank's DataLoader waits for a file that nobody writes."""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset


class Shards(Dataset):
    def __init__(self, folder, rank):
        self.paths = [os.path.join(folder, f"shard-{rank}-{number}.pt") for number in range(2)]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        while not os.path.exists(self.paths[index]):
            time.sleep(0.1)
        return torch.load(self.paths[index])


def train(folder):
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for number in range(2 - rank):
        torch.save(torch.ones(2), os.path.join(folder, f"shard-{rank}-{number}.pt"))
    loader = DataLoader(Shards(folder, rank), num_workers=1)
    for batch in loader:
        dist.all_reduce(batch)
    dist.destroy_process_group()


if __name__ == "__main__":
    if "RANK" in os.environ:
        train(sys.argv[1])
    else:
        from torch.distributed.run import main

        main(["--nproc-per-node=2", "--standalone", __file__, tempfile.mkdtemp()])
