"""Stages of a pipeline pass activations round: all send first, and those sends need a receiver."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Stage:
    def __init__(self, index, count):
        self.following, self.previous = (index + 1) % count, (index - 1) % count

    def forward(self, activations):
        dist.send(activations, self.following)
        dist.recv(activations, self.previous)
        return activations


def run(index, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=index, world_size=2)
    stage = Stage(index, 2)
    activations = torch.full((8_000_000,), float(index))
    print(stage.forward(activations).mean())


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(run, args=(port,), nprocs=2, start_method="fork")
