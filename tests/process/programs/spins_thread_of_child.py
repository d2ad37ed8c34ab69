"""A thread of a child spins in Python, the child waits for it, the parent for the child."""

import os
import threading


def go_round():
    while True:
        pass


child = os.fork()
if child == 0:
    thread = threading.Thread(target=go_round)
    thread.start()
    thread.join()
os.waitpid(child, 0)
