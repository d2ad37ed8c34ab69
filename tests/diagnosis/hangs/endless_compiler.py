"""torch.compile has started a C++ compiler that never ends (here a script that sleeps, as with a lost license server)."""

import os
import stat
import tempfile

folder = tempfile.mkdtemp()
compiler = os.path.join(folder, "g++")
with open(compiler, "w") as script:
    script.write('#!/bin/sh\n[ "$1" = --version ] && echo "g++ (GCC) 12.2.0" && exit\nsleep 1000\n')
os.chmod(compiler, stat.S_IRWXU)
os.environ |= {"CXX": compiler, "TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "1"}

import torch  # noqa: E402


@torch.compile
def scaled(x):
    return torch.sin(x) * 2


print(scaled(torch.ones(8)))
