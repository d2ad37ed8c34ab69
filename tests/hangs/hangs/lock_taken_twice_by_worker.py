"""The only worker takes its lock a second time, and the main thread waits for what the worker would put."""

import queue
import threading

results, lock = queue.Queue(), threading.Lock()


def work():
    with lock:
        lock.acquire()
        results.put(1)


threading.Thread(target=work).start()
results.get()
