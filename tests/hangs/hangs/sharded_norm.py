"""The first rank logs the norm of a sharded weight, the second gathers something else, the third does neither."""

import os
import socket

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor


def log_norm(weight):
    if dist.get_rank() == 0:
        print(weight.full_tensor().norm())
    elif dist.get_rank() == 1:
        print(functional.all_gather_tensor(torch.ones(4), 0, dist.group.WORLD).sum())


def train(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="3")
    mesh = init_device_mesh("cpu", (3,))
    weight = distribute_tensor(torch.ones(6, 2), mesh, [Shard(0)])
    log_norm(weight)
    dist.barrier()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(train, args=(port,), nprocs=3, start_method="fork")
