"""A worker that hands over samples through a pipe has been stopped; who wants the next one waits without deadline."""

import multiprocessing
import os
import signal


def work(samples):
    while True:
        samples.send(os.getpid())


if __name__ == "__main__":
    samples, theirs = multiprocessing.Pipe(duplex=False)
    worker = multiprocessing.get_context("fork").Process(target=work, args=(theirs,), daemon=True)
    worker.start()
    os.kill(samples.recv(), signal.SIGSTOP)
    while samples.recv():
        pass
