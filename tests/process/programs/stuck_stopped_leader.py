"""The first process has stopped itself while its child waits for a message from it."""

import os
import signal

reader, writer = os.pipe()
if os.fork() == 0:
    os.close(writer)
    os.read(reader, 1)
    os._exit(0)
os.kill(os.getpid(), signal.SIGSTOP)
