"""At the exit a finalizer wants a lock that the script has taken and never given back."""

import threading
import weakref

guard = threading.Lock()


class Cache:
    pass


def flush(name):
    with guard:
        print("flushed", name)


cache = Cache()
weakref.finalize(cache, flush, "cache")
guard.acquire()
