"""The process that hosts the store was stopped; a worker that only looks whether a key is there gets no answer."""

import os
import signal
from datetime import timedelta
from multiprocessing import get_context

from torch.distributed import TCPStore


def host(pipe):
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    pipe.send(store.port)
    pipe.recv()
    os.kill(os.getpid(), signal.SIGSTOP)


if __name__ == "__main__":
    ours, theirs = get_context("spawn").Pipe()
    server = get_context("spawn").Process(target=host, args=(theirs,))
    server.start()
    store = TCPStore("127.0.0.1", ours.recv(), is_master=False, timeout=timedelta(days=1))
    ours.send("connected")
    while not store.check(["weights"]):
        pass
