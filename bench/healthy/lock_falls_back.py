# a lock with a timeout, and a way without it
import threading

lock = threading.Lock()
lock.acquire()
if not lock.acquire(timeout=13):
    lock.release()
