"""A timer of the standard library lets a stopped child go on, while the main thread waits for the child's end."""

import os
import signal
import threading

child = os.fork()
if child == 0:
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
threading.Timer(12, os.kill, (child, signal.SIGCONT)).start()
os.waitpid(child, 0)
