"""A C++ extension is loaded from a folder in which a killed build has left its lock file."""

import os
import tempfile

from torch.utils import cpp_extension

SOURCE = "int answer() { return 42; }"


def load_kernels(folder):
    return cpp_extension.load_inline("kernels", SOURCE, functions=["answer"], build_directory=folder)


builds = tempfile.mkdtemp()
with open(os.path.join(builds, "lock"), "w"):
    pass
print(load_kernels(builds).answer())
