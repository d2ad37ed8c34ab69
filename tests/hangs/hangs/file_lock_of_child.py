"""A child keeps the lock of a cache while it waits for work, and its parent wants the lock."""

import multiprocessing as mp
import os
import tempfile

from filelock import FileLock


def serve(path, ready, jobs):
    with FileLock(path):
        ready.set()
        jobs.get()


if __name__ == "__main__":
    context = mp.get_context("fork")
    path = os.path.join(tempfile.mkdtemp(), "cache.lock")
    ready, jobs = context.Event(), context.SimpleQueue()
    context.Process(target=serve, args=(path, ready, jobs), daemon=True).start()
    ready.wait()
    with FileLock(path):
        jobs.put("done")
