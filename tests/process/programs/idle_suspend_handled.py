"""A child is asked to stop by SIGTSTP, handles that, and is asked again until it is done."""

import os
import signal
import time

asked = []
signal.signal(signal.SIGTSTP, lambda *_: asked.append(1))
child = os.fork()
if child == 0:
    while len(asked) < 4:
        signal.pause()
    os._exit(0)
for _ in range(4):
    time.sleep(1.8)
    os.kill(child, signal.SIGTSTP)
os.waitpid(child, 0)
