"""A C++ future is asked for its result; the thread that should set it has returned early."""

import ctypes
import os
import subprocess
import tempfile

SOURCE = r"""
#include <future>
#include <thread>
static std::promise<double> loss;
static void compute(int batches) {
    if (batches == 0) return;
    loss.set_value(0.5);
}
extern "C" double evaluate(int batches) {
    std::future<double> result = loss.get_future();
    std::thread worker(compute, batches);
    worker.detach();
    return result.get();
}
"""

folder = tempfile.mkdtemp()
source, library = os.path.join(folder, "evaluate.cpp"), os.path.join(folder, "evaluate.so")
with open(source, "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-g", "-O1", "-pthread", "-shared", "-fPIC", source, "-o", library], check=True)
evaluator = ctypes.CDLL(library)
evaluator.evaluate.restype = ctypes.c_double


class Validation:
    def run(self, batches):
        return evaluator.evaluate(batches)


print(Validation().run(0))
