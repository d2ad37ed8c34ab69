"""A child inherits a lock that a thread of its parent holds while it works, and the parent works on."""

import os
import threading
import time

cache_lock = threading.Lock()


def work():
    while True:
        with cache_lock:
            sum(range(1_000_000))


threading.Thread(target=work, daemon=True).start()
while True:
    time.sleep(0.01)
    child = os.fork()
    if not child:
        with cache_lock:
            os._exit(0)
    os.waitpid(child, 0)
