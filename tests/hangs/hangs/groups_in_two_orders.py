"""Two ranks use two groups in opposite order: both are on the same line, and each for another group."""

import os
import socket

import torch
import torch.distributed as dist
from torch.multiprocessing import start_processes


def reduce_all(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2)
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    gradient = torch.ones(4)
    for group in groups if rank == 0 else groups[::-1]:
        dist.all_reduce(gradient, group=group)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    start_processes(reduce_all, args=(port,), nprocs=2, start_method="fork")
