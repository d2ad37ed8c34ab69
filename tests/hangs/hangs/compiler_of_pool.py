"""A worker of torch.compile's pool has started a C++ compiler that never ends; the caller waits for the kernel."""

import os
import shutil
import stat
import tempfile

folder = tempfile.mkdtemp()
compiler = os.path.join(folder, "g++")
with open(compiler, "w") as script:
    script.write('#!/bin/sh\nfor word; do case "$word" in *.cpp) grep -q in_ptr0 "$word" && sleep 1000;; esac; done\n')
    script.write(f'exec {shutil.which("g++")} "$@"\n')
os.chmod(compiler, stat.S_IRWXU)
os.environ |= {"CXX": compiler, "TORCHINDUCTOR_CACHE_DIR": folder, "TORCHINDUCTOR_COMPILE_THREADS": "2"}

import torch  # noqa: E402


@torch.compile
def scaled(x):
    return torch.sin(x) * 2


if __name__ == "__main__":
    print(scaled(torch.ones(8)))
