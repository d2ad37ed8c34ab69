"""A C++ ring buffer is read by more than was written: a condition variable that nobody notifies."""

import ctypes
import os
import subprocess
import tempfile
import threading

SOURCE = r"""
#include <condition_variable>
#include <deque>
#include <mutex>
static std::mutex guard;
static std::condition_variable filled;
static std::deque<float> ring;
extern "C" void ring_push(float value) {
    std::lock_guard<std::mutex> lock(guard);
    ring.push_back(value);
    filled.notify_one();
}
extern "C" float ring_pop() {
    std::unique_lock<std::mutex> lock(guard);
    while (ring.empty()) filled.wait(lock);
    float value = ring.front();
    ring.pop_front();
    return value;
}
"""


def compiled():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "ring.cpp"), os.path.join(folder, "ring.so")
    with open(source, "w") as file:
        file.write(SOURCE)
    subprocess.run(["g++", "-g", "-O1", "-pthread", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(library)


ring = compiled()
ring.ring_push.argtypes, ring.ring_pop.restype = [ctypes.c_float], ctypes.c_float
samples = []


def consume(count):
    for _ in range(count):
        samples.append(ring.ring_pop())


consumer = threading.Thread(target=consume, args=(4,), name="consumer")
consumer.start()
for value in (1.0, 2.0, 3.0):
    ring.ring_push(value)
consumer.join()
