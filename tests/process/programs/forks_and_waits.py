"""A program and its fork that wait, each in a function of its own."""

import os
import threading
import time

forever = threading.Event()


def in_child():
    forever.wait(3600)


def in_parent(child):
    os.waitpid(child, 0)


child = os.fork()
if child == 0:
    in_child()
print(child, flush=True)
in_parent(child)
