"""A lock is held by the thread that has taken it, not by those whose code takes it where they have not been."""

import threading
import time

lock = threading.Lock()
published = threading.Event()


def read(exclusive):
    if exclusive:
        lock.acquire()
    published.wait()
    if exclusive:
        lock.release()


def probe():
    if not lock.acquire(blocking=False):
        published.wait()
        return
    lock.release()


def write():
    while not lock.acquire(timeout=5):
        print("busy")
    published.wait()
    lock.release()


for target, arguments in ((read, (False,)), (write, ()), (probe, ())):
    threading.Thread(target=target, args=arguments, name=target.__name__).start()
    time.sleep(0.3)
with lock:
    published.set()
