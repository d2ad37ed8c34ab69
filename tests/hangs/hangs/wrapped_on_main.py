"""Only rank 0 wraps its model in DistributedDataParallel; its constructor talks to the others, who do not wrap."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def build(rank):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    if rank == 0:
        model = DistributedDataParallel(model)
    return model


def main(rank, world_size, port):
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = build(rank)

    dist.barrier()
    print(sum(parameter.numel() for parameter in model.parameters()))


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    mp.start_processes(main, args=(2, port), nprocs=2, start_method="fork")
