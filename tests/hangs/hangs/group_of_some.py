"""Ranks average over different groups, through one helper: one rank in its pair, the others in the whole job."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def average(value, group=None):
    dist.all_reduce(value, group=group)
    return value / dist.get_world_size(group)


def train(worker, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=worker, world_size=3)
    pair = dist.new_group([0, 1])
    loss = torch.ones(1)
    if worker == 0:
        loss = average(loss, pair)
    loss = average(loss)
    print(worker, loss)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [mp.get_context("fork").Process(target=train, args=(index, port)) for index in range(3)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
