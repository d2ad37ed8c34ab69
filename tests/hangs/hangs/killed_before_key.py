"""The rank that should announce the vocabulary was killed; the other one still asks the file store for it."""

import os
import signal
import tempfile
from datetime import timedelta
from multiprocessing import get_context

import torch.distributed as dist


def announce(path):
    store = dist.FileStore(path, 2)
    store.set_timeout(timedelta(hours=1))
    os.kill(os.getpid(), signal.SIGKILL)
    store.set("vocabulary", "32000")


def listen(path):
    store = dist.FileStore(path, 2)
    store.set_timeout(timedelta(hours=1))
    store.wait(["vocabulary"])
    print(store.get("vocabulary"))


if __name__ == "__main__":
    path = os.path.join(tempfile.mkdtemp(), "store")
    context = get_context("fork")
    children = [context.Process(target=role, args=(path,)) for role in (announce, listen)]
    for child in children:
        child.start()
    children[1].join()
