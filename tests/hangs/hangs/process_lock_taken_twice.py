"""A child takes a lock of multiprocessing in a function that is called with the lock held."""

import multiprocessing as mp


class Counter:
    def __init__(self, context):
        self.value = context.Value("i", 0, lock=False)
        self.guard = context.Lock()

    def increase(self):
        with self.guard:
            self.value.value += 1

    def increase_twice(self):
        with self.guard:
            self.increase()
            self.increase()


if __name__ == "__main__":
    context = mp.get_context("spawn")
    counter = Counter(context)
    child = context.Process(target=counter.increase_twice)
    child.start()
    child.join()
