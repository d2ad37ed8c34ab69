"""The workers of the ranks' loaders agree on a length, with a process group of which they have only copies."""

import os
import socket

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes
from torch.utils.data import DataLoader


def padded(rows):
    length = torch.tensor([max(len(row) for row in rows)])
    dist.all_reduce(length, op=dist.ReduceOp.MAX)
    return torch.nn.utils.rnn.pad_sequence(rows)


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    rows = [torch.ones(number + rank + 1) for number in range(4)]
    for batch in DataLoader(rows, 2, num_workers=1, collate_fn=padded, multiprocessing_context="fork"):
        print(batch.shape)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start_processes(train, args=(port,), nprocs=2, start_method="fork")
