"""A C++ registry calls Python back with its mutex locked, and the callback calls the registry again."""

import ctypes
import os
import subprocess
import tempfile

SOURCE = r"""
#include <mutex>
#include <vector>
class Registry {
    std::mutex guard;
    std::vector<int> values;
public:
    void add(int value, void (*changed)(int)) {
        std::lock_guard<std::mutex> lock(guard);
        values.push_back(value);
        changed(value);
    }
    int size() {
        std::lock_guard<std::mutex> lock(guard);
        return values.size();
    }
} registry;
extern "C" void registry_add(int value, void (*changed)(int)) { registry.add(value, changed); }
extern "C" int registry_size() { return registry.size(); }
"""


def build(source):
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, "registry")
    with open(f"{path}.cpp", "w") as file:
        file.write(source)
    subprocess.run(["g++", "-g", "-O1", "-shared", "-fPIC", f"{path}.cpp", "-o", f"{path}.so"], check=True)
    return ctypes.CDLL(f"{path}.so")


library = build(SOURCE)


@ctypes.CFUNCTYPE(None, ctypes.c_int)
def changed(value):
    print(value, library.registry_size())


library.registry_add(7, changed)
