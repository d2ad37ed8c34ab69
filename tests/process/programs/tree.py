"""A leader, its child in a session of its own, and a grandchild; all of them sleep."""

import os
import time

readable, writable = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.write(writable, b"!")
else:
    os.read(readable, 1)
    print("ready", flush=True)
time.sleep(600)
