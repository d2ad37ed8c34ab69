"""Two children of a pool wait for an event that their parent sets only after their results."""

import multiprocessing as mp


def attach(event):
    global start
    start = event


def work(number):
    start.wait()
    return number


if __name__ == "__main__":
    context = mp.get_context("fork")
    start = context.Event()
    with context.Pool(2, initializer=attach, initargs=(start,)) as pool:
        results = [pool.apply_async(work, (number,)) for number in range(2)]
        print([result.get() for result in results])
        start.set()
