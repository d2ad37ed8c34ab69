"""A child is stopped by its tracer, which lets it go on after a pause."""

import ctypes
import os
import signal
import time

TRACEME, DETACH = 0, 17  # linux/ptrace.h
ptrace = ctypes.CDLL(None, use_errno=True).ptrace
ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
child = os.fork()
if child == 0:
    ptrace(TRACEME, 0, None, None)
    os.kill(os.getpid(), signal.SIGSTOP)
    os._exit(0)
os.waitpid(child, 0)
assert open(f"/proc/{child}/stat").read().rpartition(")")[2].split()[0] == "t"
time.sleep(12)
ptrace(DETACH, child, None, None)
os.waitpid(child, 0)
