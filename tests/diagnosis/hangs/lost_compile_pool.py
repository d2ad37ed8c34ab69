"""A compile worker of torch's pool waits in a task for a pass that has been left at a breakpoint."""

import os
import tempfile
import time

from torch._inductor.compile_worker.subproc_pool import SubprocPool


def tune(path):
    while not os.path.exists(path):
        time.sleep(0.05)
    return path


if __name__ == "__main__":
    pool = SubprocPool(2)
    futures = [pool.submit(tune, os.path.join(tempfile.gettempdir(), f"no-such-tuning-{n}")) for n in range(2)]
    for future in futures:
        print(future.result())
