"""An evaluator asks the store for weights under a name that the trainer has not used."""

import multiprocessing as mp
import socket
from datetime import timedelta

import torch.distributed as dist


class Exchange:
    def __init__(self, port, is_server):
        self.store = dist.TCPStore("127.0.0.1", port, 2, is_server, timeout=timedelta(hours=1))

    def publish(self, step, weights):
        self.store.set(f"weights/{step}", weights)

    def latest(self, step):
        return self.store.get(f"weight/{step}")


def train(port):
    exchange = Exchange(port, True)
    exchange.publish(1, b"0.5 0.5")
    exchange.store.wait(["evaluated"])


def evaluate(port):
    print(Exchange(port, False).latest(1))


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    roles = [context.Process(target=role, args=(port,), name=role.__name__) for role in (train, evaluate)]
    for process in roles:
        process.start()
    for process in roles:
        process.join()
