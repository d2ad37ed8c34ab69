"""A thread has taken a lock in a function that has returned, and waits for an item; the main thread wants the lock."""

import queue
import threading
import time

lock = threading.Lock()


def reserve():
    lock.acquire()


def keep(items):
    reserve()
    print(items.get())
    lock.release()


threading.Thread(target=keep, args=(queue.Queue(),), name="keeper").start()
time.sleep(0.5)
with lock:
    print("reserved")
