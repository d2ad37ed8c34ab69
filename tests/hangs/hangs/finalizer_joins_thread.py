"""An object's finalizer joins its thread, which ends only when it is told to."""

import threading


class Sampler:
    def __init__(self):
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.stopped.wait, name="sampler", daemon=True)
        self.thread.start()

    def __del__(self):
        self.thread.join()


def sample():
    sampler = Sampler()
    return sampler.thread.name


print(sample())
