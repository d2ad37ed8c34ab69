"""torch.compile has started a C++ compiler that never ends (here a script that sleeps, as with a lost license server)."""

import os
import shutil
import stat
import tempfile

folder = tempfile.mkdtemp()
compiler = os.path.join(folder, "g++")
with open(compiler, "w") as script:
    script.write(f'#!/bin/sh\ncase "$*" in *-shared*) sleep 1000;; esac\nexec {shutil.which("g++")} "$@"\n')
os.chmod(compiler, stat.S_IRWXU)
os.environ |= {"CXX": compiler, "TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "1"}

import torch  # noqa: E402


@torch.compile
def scaled(x):
    return torch.sin(x) * 2


print(scaled(torch.ones(8)))
