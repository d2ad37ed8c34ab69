"""The main thread joins a native thread with a lock held that the native thread's callback into Python wants."""

import ctypes
import os
import subprocess
import tempfile
import threading

SOURCE = r"""
#include <pthread.h>
static void (*reported)(int);
static void* run(void*) {
    for (int step = 0; step < 3; ++step) reported(step);
    return nullptr;
}
static pthread_t worker;
extern "C" void solver_start(void (*report)(int)) {
    reported = report;
    pthread_create(&worker, nullptr, run, nullptr);
}
extern "C" void solver_finish() { pthread_join(worker, nullptr); }
"""


class Solver:
    def __init__(self):
        folder = tempfile.mkdtemp()
        source, library = os.path.join(folder, "solver.cpp"), os.path.join(folder, "solver.so")
        with open(source, "w") as file:
            file.write(SOURCE)
        subprocess.run(["g++", "-g", "-O1", "-pthread", "-shared", "-fPIC", source, "-o", library], check=True)
        self.library = ctypes.CDLL(library)
        self.progress = threading.Lock()
        self.steps = []
        self.report = ctypes.CFUNCTYPE(None, ctypes.c_int)(self.reported)

    def reported(self, step):
        with self.progress:
            self.steps.append(step)

    def solve(self):
        with self.progress:
            self.library.solver_start(self.report)
            self.library.solver_finish()
            return list(self.steps)


print(Solver().solve())
