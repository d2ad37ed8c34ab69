"""A spawned child waits for a notification that has come before it waited."""

import multiprocessing as mp


def wait_for_weights(fresh):
    with fresh:
        fresh.wait()


if __name__ == "__main__":
    context = mp.get_context("spawn")
    fresh = context.Condition()
    with fresh:
        fresh.notify_all()
    reader = context.Process(target=wait_for_weights, args=(fresh,))
    reader.start()
    reader.join()
