import atexit
import threading

lock = threading.Lock()
lock.acquire()
atexit.register(lock.acquire)
print("success")
