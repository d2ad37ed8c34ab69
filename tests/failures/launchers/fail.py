import ctypes
import os
import signal
import sys


def fail(way):
    if way == "exception":
        raise KeyError("weights")
    if way == "other exception":
        raise OSError("no shm")
    if way == "exit code":
        os._exit(7)
    if way == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if way == "abort":
        ctypes.CDLL("libstdc++.so.6")._ZSt9terminatev()
    if way == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
