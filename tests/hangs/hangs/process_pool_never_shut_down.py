"""The script ends without a shutdown of its process pool, whose task waits for a lock that the parent holds."""

import multiprocessing as mp
from concurrent.futures import ProcessPoolExecutor

context = mp.get_context("fork")
turn = context.Lock()


def take_turn():
    turn.acquire()


if __name__ == "__main__":
    turn.acquire()
    pool = ProcessPoolExecutor(1, mp_context=context)
    pool.submit(take_turn)
