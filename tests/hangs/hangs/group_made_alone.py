"""One of two members makes a new group; the other waits for a message that would be sent in it."""

import os
import socket
from multiprocessing import get_context

import torch
import torch.distributed as dist


def run(number, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=number, world_size=2)
    message = torch.zeros(3)
    if number == 0:
        group = dist.new_group([0, 1])
        dist.send(message, 1, group=group)
    else:
        dist.recv(message, 0)
    print(message)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [get_context("fork").Process(target=run, args=(number, port)) for number in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
