"""torch's pool of compile workers is asked for a result while its worker sleeps in a task."""

import time

from torch._inductor.compile_worker.subproc_pool import SubprocPool

pool = SubprocPool(1)
futures = [pool.submit(time.sleep, 10_000), pool.submit(len, "kernel")]
for future in reversed(futures):
    print(future.result())
