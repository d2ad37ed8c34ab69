"""A pool of native buffers has two; the third that is taken waits at a semaphore, and nothing is given back."""

import ctypes
import os
import subprocess
import tempfile

SOURCE = r"""
#include <semaphore.h>
static sem_t buffers;
extern "C" void buffers_create(int count) { sem_init(&buffers, 0, count); }
extern "C" void buffers_take() { sem_wait(&buffers); }
extern "C" void buffers_give() { sem_post(&buffers); }
"""


class Buffers:
    def __init__(self, count):
        folder = tempfile.mkdtemp()
        source, library = os.path.join(folder, "buffers.cpp"), os.path.join(folder, "buffers.so")
        with open(source, "w") as file:
            file.write(SOURCE)
        subprocess.run(["g++", "-g", "-O1", "-pthread", "-shared", "-fPIC", source, "-o", library], check=True)
        self.library = ctypes.CDLL(library)
        self.library.buffers_create(count)

    def take(self):
        self.library.buffers_take()


buffers = Buffers(2)
taken = [buffers.take() for _ in range(3)]
