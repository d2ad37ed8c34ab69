import os
import threading

lock = threading.Lock()
lock.acquire()
child = os.fork()
if child == 0:
    lock.acquire()
os.waitpid(child, 0)
