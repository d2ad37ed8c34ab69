"""A child was killed while it read a queue; the next one wants its lock, and a third one reads another queue."""

import os
import signal
import time
from multiprocessing import get_context


def read(jobs):
    print(jobs.get())


if __name__ == "__main__":
    context = get_context("fork")
    images, labels = context.Queue(), context.Queue()
    for jobs in (images, labels):
        reader = context.Process(target=read, args=(jobs,))
        reader.start()
    time.sleep(1)
    os.kill(reader.pid, signal.SIGKILL)
    reader.join()
    second = context.Process(target=read, args=(labels,))
    second.start()
    second.join()
