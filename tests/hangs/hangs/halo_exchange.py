"""Neighbours exchange borders: the receives name the wrong neighbour, so that nothing of what is sent is received."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def exchange(border, rank, size):
    received = torch.empty_like(border)
    requests = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.isend, border, (rank + 1) % size),
            dist.P2POp(dist.irecv, received, (rank + 1) % size),
        ]
    )
    for request in requests:
        request.wait()
    return received


def simulate(rank, size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    field = torch.full((1 << 20,), float(rank))
    for _ in range(10):
        field += exchange(field, rank, size)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    mp.start_processes(simulate, args=(3, port), nprocs=3, start_method="fork")
