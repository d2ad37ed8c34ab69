# two of three gloo ranks reduce while the third broadcasts
import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def step(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=3)
    values = torch.ones(4)
    if rank == 2:
        dist.broadcast(values, src=0)
    else:
        dist.all_reduce(values)
        dist.all_reduce(values)
    dist.destroy_process_group()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(step, args=(port,), nprocs=3)
