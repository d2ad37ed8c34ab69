"""A lock is taken by a context manager of the program; its holder waits for a thread that wants it too."""

import threading
from contextlib import contextmanager


class Store:
    def __init__(self):
        self._mutex = threading.Lock()
        self.rows = {}

    @contextmanager
    def exclusive(self):
        self._mutex.acquire()
        try:
            yield self.rows
        finally:
            self._mutex.release()


def refresh(store):
    with store.exclusive() as rows:
        rows.clear()


def rebuild(store):
    with store.exclusive() as rows:
        cleaner = threading.Thread(target=refresh, args=(store,), name="cleaner")
        cleaner.start()
        cleaner.join()
        rows["weights"] = 1


rebuild(Store())
