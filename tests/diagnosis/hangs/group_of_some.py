"""Only the members of a new group make it; the third rank is at the next barrier of all already."""

import os
import socket

import torch.distributed as dist
import torch.multiprocessing as mp


def tensor_parallel(rank):
    if rank < 2:
        return dist.new_group([0, 1])
    return None


def main(rank, size, port):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "127.0.0.1", str(port)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    group = tensor_parallel(rank)
    dist.barrier()
    print(rank, group)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(main, args=(3, port), nprocs=3, start_method="fork")
