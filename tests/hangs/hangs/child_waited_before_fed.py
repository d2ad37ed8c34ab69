"""A parent waits for its forked child before it writes what the child reads."""

import os

reading, writing = os.pipe()
child = os.fork()
if child == 0:
    os.close(writing)
    with open(reading, "rb") as pipe:
        print(pipe.read())
    os._exit(0)
os.close(reading)
pid, status = os.waitpid(child, 0)
os.write(writing, b"weights")
