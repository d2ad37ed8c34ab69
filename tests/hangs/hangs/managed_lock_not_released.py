"""A child takes a manager's lock and ends without giving it back."""

import multiprocessing as mp


def reserve(slots, guard):
    guard.acquire()
    slots.append(1)


if __name__ == "__main__":
    context = mp.get_context("fork")
    with context.Manager() as manager:
        slots, guard = manager.list(), manager.Lock()
        child = context.Process(target=reserve, args=(slots, guard))
        child.start()
        child.join()
        with guard:
            print(len(slots))
