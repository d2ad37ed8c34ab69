"""A thread of a child waits for a lock that nobody releases, the child for its thread, the parent for the child."""

import os
import threading

lock = threading.Lock()
lock.acquire()


def take():
    lock.acquire()


child = os.fork()
if child == 0:
    thread = threading.Thread(target=take)
    thread.start()
    thread.join()
os.waitpid(child, 0)
