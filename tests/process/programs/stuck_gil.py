"""A C function that keeps the GIL waits for what a thread could only do with the GIL."""

import ctypes
import threading

semaphore = ctypes.create_string_buffer(64)
library = ctypes.PyDLL(None)  # unlike CDLL, keeps the GIL
library.sem_init(semaphore, 0, 0)
started = threading.Event()


def post():
    started.wait()
    for _ in range(10**9):
        pass
    library.sem_post(semaphore)


threading.Thread(target=post, daemon=True).start()
started.set()
library.sem_wait(semaphore)
