"""The system kills a worker of a pool in the middle of a task, whose result never comes."""

import multiprocessing as mp
import os
import signal


def score(number):
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def main():
    with mp.get_context("fork").Pool(2) as pool:
        print(pool.map(score, range(8), chunksize=1))


if __name__ == "__main__":
    main()
