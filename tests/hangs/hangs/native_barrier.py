"""Two threads wait at a native barrier that is made for three."""

import ctypes
import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

SOURCE = r"""
#include <pthread.h>
static pthread_barrier_t meeting;
extern "C" void meeting_create(int count) { pthread_barrier_init(&meeting, nullptr, count); }
extern "C" int meeting_wait() { return pthread_barrier_wait(&meeting); }
"""

folder = tempfile.mkdtemp()
source, library = os.path.join(folder, "meeting.cpp"), os.path.join(folder, "meeting.so")
with open(source, "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-g", "-O1", "-pthread", "-shared", "-fPIC", source, "-o", library], check=True)
meeting = ctypes.CDLL(library)
meeting.meeting_create(3)


def stage(number):
    return number, meeting.meeting_wait()


with ThreadPoolExecutor(2, thread_name_prefix="stage") as pool:
    print(list(pool.map(stage, range(2))))
