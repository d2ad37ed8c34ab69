"""A child marks one item less as done than the parent has put."""

import multiprocessing


def consume(jobs):
    for _ in range(2):
        print(jobs.get())
        jobs.task_done()


if __name__ == "__main__":
    jobs = multiprocessing.get_context("fork").JoinableQueue()
    for name in ("a", "b", "c"):
        jobs.put(name)
    consumer = multiprocessing.get_context("fork").Process(target=consume, args=(jobs,))
    consumer.start()
    jobs.join()
