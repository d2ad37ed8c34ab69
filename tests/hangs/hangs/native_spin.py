"""A C++ function turns in a loop until another thread sets a flag, which it set before the loop had cleared it."""

import ctypes
import os
import subprocess
import tempfile

SOURCE = r"""
#include <atomic>
static std::atomic<bool> is_ready{false};
extern "C" void mark_ready() { is_ready.store(true); }
extern "C" long spin_until_ready() {
    is_ready.store(false);
    long turns = 0;
    while (!is_ready.load()) ++turns;
    return turns;
}
"""

folder = tempfile.mkdtemp()
source, library = os.path.join(folder, "flag.cpp"), os.path.join(folder, "flag.so")
with open(source, "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-g", "-O1", "-shared", "-fPIC", source, "-o", library], check=True)
flag = ctypes.CDLL(library)
flag.mark_ready()
print(flag.spin_until_ready())
