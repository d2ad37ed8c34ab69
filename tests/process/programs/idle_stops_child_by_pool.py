"""The end of a task of a pool, which only sleeps, lets a stopped child go on."""

import concurrent.futures
import os
import signal
import time

child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
pool = concurrent.futures.ThreadPoolExecutor(1)
pool.submit(time.sleep, 14).add_done_callback(lambda _: os.kill(child, signal.SIGCONT))
os.waitpid(child, 0)
