"""One rank does not come to the reduction of metrics: it wants a lock that its own logging thread keeps."""

import os
import queue
import socket
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Metrics:
    def __init__(self):
        self.guard = threading.RLock()
        self.lines = queue.Queue()
        self.values = []

    def write(self):
        with self.guard:
            line = self.lines.get()
            print(line)

    def add(self, value):
        with self.guard:
            self.values.append(value)


def work(index, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=index, world_size=2)
    metrics = Metrics()
    if index == 1:
        writer = threading.Thread(target=metrics.write, name="metrics-writer", daemon=True)
        writer.start()
        while metrics.guard.acquire(blocking=False):
            metrics.guard.release()
    metrics.add(1.0)
    total = torch.tensor(metrics.values).sum()
    dist.reduce(total, dst=0)
    dist.barrier()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(work, (port,), nprocs=2, start_method="fork")
