"""A native function waits with the GIL held for a notification that only a Python thread could send."""

import ctypes
import os
import subprocess
import tempfile
import threading

SOURCE = r"""
#include <condition_variable>
#include <mutex>
static std::mutex guard;
static std::condition_variable finished;
static bool is_finished = false;
extern "C" void job_finish() {
    std::lock_guard<std::mutex> lock(guard);
    is_finished = true;
    finished.notify_all();
}
extern "C" void job_wait() {
    std::unique_lock<std::mutex> lock(guard);
    finished.wait(lock, [] { return is_finished; });
}
"""

folder = tempfile.mkdtemp()
source, library = os.path.join(folder, "job.cpp"), os.path.join(folder, "job.so")
with open(source, "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-g", "-O1", "-pthread", "-shared", "-fPIC", source, "-o", library], check=True)
job = ctypes.PyDLL(library)
is_started = threading.Event()


def work():
    is_started.set()
    total = 0
    for number in range(10**9):
        total += number
    job.job_finish()


threading.Thread(target=work, name="background job", daemon=True).start()
is_started.wait()
job.job_wait()
