"""A process is forked while one of its threads holds a lock that the child then wants."""

import os
import threading

cache_lock = threading.Lock()
is_held, may_end = threading.Event(), threading.Event()


def refresh():
    with cache_lock:
        is_held.set()
        may_end.wait()


threading.Thread(target=refresh, name="refresher").start()
is_held.wait()
pid = os.fork()
if pid == 0:
    with cache_lock:
        os._exit(0)
may_end.set()
os.waitpid(pid, 0)
