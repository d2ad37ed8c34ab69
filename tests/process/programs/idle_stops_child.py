"""A thread lets a stopped child go on after several short sleeps, while the main thread waits for the child's end."""

import os
import signal
import threading
import time

child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)


def resume():
    for _ in range(28):
        time.sleep(0.5)
    os.kill(child, signal.SIGCONT)


threading.Thread(target=resume).start()
os.waitpid(child, 0)
