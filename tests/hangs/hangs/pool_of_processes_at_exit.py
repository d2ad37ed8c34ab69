"""A task of a process pool waits for another child's message while the script leaves the pool."""

import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor


def evaluate(name):
    return receiver.recv(), name


if __name__ == "__main__":
    receiver, sender = mp.Pipe(duplex=False)
    with ProcessPoolExecutor(1, mp_context=mp.get_context("fork")) as pool:
        future = pool.submit(evaluate, "weights")
    sender.send(1)
    print(future.result())
