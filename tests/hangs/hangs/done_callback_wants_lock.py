"""The callback of a future wants the lock that the main thread holds while it waits for the callback's event."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor


def main():
    results, results_lock, stored = [], threading.Lock(), threading.Event()

    def store(future):
        results_lock.acquire()
        try:
            results.append(future.result())
            stored.set()
        finally:
            results_lock.release()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="scorer") as pool:
        with results_lock:
            pool.submit(time.sleep, 0.5).add_done_callback(store)
            stored.wait()
        print(results)


main()
