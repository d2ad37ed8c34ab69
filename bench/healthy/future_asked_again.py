# asks a future again and again, for a second each, and gives up after some
from concurrent.futures import ThreadPoolExecutor, TimeoutError
import threading

stop = threading.Event()
with ThreadPoolExecutor() as pool:
    future = pool.submit(stop.wait)
    for _ in range(13):
        try:
            future.result(timeout=1)
        except TimeoutError:
            pass
    stop.set()
