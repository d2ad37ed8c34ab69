"""A pool of threads is never shut down, and its task waits for a flag that nobody sets any more."""

import threading
from concurrent.futures import ThreadPoolExecutor


class Prefetcher:
    def __init__(self):
        self.stop = threading.Event()
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="prefetch")
        self.pool.submit(self.run)

    def run(self):
        self.stop.wait()


prefetcher = Prefetcher()
