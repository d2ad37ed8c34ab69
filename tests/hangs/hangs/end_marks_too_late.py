"""Consumers wait for an end mark, which the main process puts into their queue only after their end."""

import time
from multiprocessing import get_context


def consume(jobs, delay):
    time.sleep(delay)
    while (item := jobs.get()) is not None:
        print(item)


if __name__ == "__main__":
    context = get_context("fork")
    jobs = context.Queue()
    consumers = [context.Process(target=consume, args=(jobs, delay)) for delay in (1, 0)]
    for consumer in consumers:
        consumer.start()
    for consumer in consumers:
        consumer.join()
    for _ in consumers:
        jobs.put(None)
