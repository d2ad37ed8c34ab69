"""One of three spawned ranks never finishes its own computation, and the others wait for it."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(local, ranks, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=local, world_size=ranks)
    total = torch.tensor([float(local)])
    if local == 2:
        while total.item() < 10:
            total = total * 1.0
    dist.all_reduce(total)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    mp.spawn(work, args=(3, port), nprocs=3)
