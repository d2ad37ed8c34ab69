"""A child is killed while it waits in a queue, with the lock of the queue's reading end, and its sibling waits for it."""

import multiprocessing as mp
import os
import signal


def take(jobs, ready):
    ready.set()
    print(jobs.get())


if __name__ == "__main__":
    context = mp.get_context("fork")
    jobs, ready = context.SimpleQueue(), context.Event()
    first = context.Process(target=take, args=(jobs, ready))
    first.start()
    ready.wait()
    while "pipe" not in open(f"/proc/{first.pid}/wchan").read():
        pass
    os.kill(first.pid, signal.SIGKILL)
    os.waitid(os.P_PID, first.pid, os.WEXITED | os.WNOWAIT)
    second = context.Process(target=take, args=(jobs, ready), name="second")
    second.start()
    jobs.put("weights")
    second.join()
