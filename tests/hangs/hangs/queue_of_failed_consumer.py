"""The parent fills a bounded queue whose consumer has failed."""

import multiprocessing as mp


def consume(batches):
    while True:
        print(1 / batches.get())


class Feeder:
    def __init__(self, context):
        self.batches = context.Queue(maxsize=2)
        context.Process(target=consume, args=(self.batches,), daemon=True).start()

    def feed(self, numbers):
        for number in numbers:
            self.batches.put(number)


if __name__ == "__main__":
    Feeder(mp.get_context("fork")).feed([1, 0, 1, 1, 1, 1])
