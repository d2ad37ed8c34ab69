"""Two processes share a cache of kernels: the second wants the file lock that the first, stopped, still has."""

import os
import signal
import tempfile
from multiprocessing import get_context

import torch
from torch.utils._filelock import FileLock


class KernelCache:
    def __init__(self, folder):
        self.folder = folder

    def get(self, build):
        with FileLock(os.path.join(self.folder, "kernels.lock")):
            return build()


def build():
    return torch.compile(lambda x: x + 1, backend="eager")


def first(cache, pipe):
    def pause():
        pipe.send("building")
        os.kill(os.getpid(), signal.SIGSTOP)
        return build()

    cache.get(pause)


if __name__ == "__main__":
    cache = KernelCache(tempfile.mkdtemp())
    here, there = get_context("fork").Pipe()
    get_context("fork").Process(target=first, args=(cache, there), daemon=True).start()
    here.recv()
    print(cache.get(build)(torch.ones(2)))
