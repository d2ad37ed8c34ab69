"""A thread that reads a native table under a read-write lock wants to write it, and waits for its own reading."""

import ctypes
import os
import subprocess
import tempfile

SOURCE = r"""
#include <mutex>
#include <shared_mutex>
static std::shared_mutex guard;
static int table[4];
extern "C" int table_add_if_missing(int key) {
    std::shared_lock<std::shared_mutex> reading(guard);
    if (table[key]) return table[key];
    std::unique_lock<std::shared_mutex> writing(guard);
    return table[key] = 1;
}
"""

folder = tempfile.mkdtemp()
source, library = os.path.join(folder, "table.cpp"), os.path.join(folder, "table.so")
with open(source, "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-g", "-O1", "-std=c++17", "-pthread", "-shared", "-fPIC", source, "-o", library], check=True)
table = ctypes.CDLL(library)
print([table.table_add_if_missing(key) for key in range(4)])
