"""A child spins in Python, the parent waits for it."""

import os


def go_round():
    while True:
        pass


child = os.fork()
if child == 0:
    go_round()
os.waitpid(child, 0)
