"""A build of kernels, guarded by torch's FileBaton, needs a second build that is guarded by the same lock file."""

import os
import tempfile

from torch.utils.file_baton import FileBaton


class Builder:
    def __init__(self, folder):
        self.guard = os.path.join(folder, "build.lock")

    def build(self, name, needs=()):
        baton = FileBaton(self.guard)
        if not baton.try_acquire():
            baton.wait()
            return name
        try:
            return [name, *(self.build(other) for other in needs)]
        finally:
            baton.release()


print(Builder(tempfile.mkdtemp()).build("attention", needs=["softmax"]))
