"""A lock is kept by a `with` whose body is on its line, and given back for a while by another thread's."""

import queue
import threading
import time

lock = threading.Lock()
answers = queue.Queue()
stop = threading.Event()


def fetch():
    with lock: answers.get()


def watch():
    with lock:
        lock.release()
        stop.wait()
        lock.acquire()


for target in (watch, fetch):
    threading.Thread(target=target, name=target.__name__).start()
    time.sleep(0.5)
with lock:
    stop.set()
