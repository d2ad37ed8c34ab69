"""A loop waits for a wake-up by a pipe of which only the waiting process has the other end."""

import os
import select


class Waker:
    def __init__(self):
        self.reading, self.writing = os.pipe()

    def wait(self):
        readable, _, _ = select.select([self.reading], [], [])
        return os.read(readable[0], 1)

    def wake(self):
        os.write(self.writing, b"!")


waker = Waker()
waker.wait()
