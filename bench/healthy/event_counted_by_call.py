# polls an event, and another function counts
import itertools
import threading

count, event = itertools.count(), threading.Event()


def is_over():
    return next(count) > 26


while not is_over():
    event.wait(0.5)
