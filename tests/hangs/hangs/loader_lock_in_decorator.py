"""A decorator takes a lock around each function, and one decorated function calls another."""

import functools
import threading

_state_lock = threading.Lock()


def synchronized(function):
    @functools.wraps(function)
    def inner(*args):
        with _state_lock:
            return function(*args)

    return inner


@synchronized
def size(rows):
    return len(rows)


@synchronized
def report(rows):
    print(f"{size(rows)} rows")


report([1, 2])
