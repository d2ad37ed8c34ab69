"""At the exit a hook waits for a result that nobody is left to set."""

import atexit
from concurrent.futures import Future


class Report:
    def __init__(self):
        self.uploaded = Future()
        atexit.register(self.close)

    def close(self):
        print("uploaded as", self.uploaded.result())


report = Report()
print("trained")
