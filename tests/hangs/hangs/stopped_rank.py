"""One of three ranks was stopped by a debugger, the others wait for it in a reduce_scatter."""

import os
import signal
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def step(model, rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    parts = list(torch.ones(6).chunk(3))
    out = torch.empty(2)
    work = dist.reduce_scatter(out, parts, async_op=True)
    work.wait()
    return model * out


def main(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3)
    dist.barrier()
    print(step(torch.ones(2), rank))


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(main, (port,), nprocs=3, start_method="fork")
