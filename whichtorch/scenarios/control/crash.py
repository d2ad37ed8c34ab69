# /// scenario
# summary = "is killed by a signal of its own making"
# tags = ["control"]
# timeout = 30
# on_request = true
# expect = [{ outcome = "crash" }]
# [variants]
# signal = ["SIGSEGV", "SIGABRT", "SIGFPE"]
# ///
import ctypes
import os
import signal

name = os.environ.get("WHICHTORCH_SIGNAL", "SIGSEGV")
print("about to die of", name, flush=True)
if name == "SIGSEGV":
    ctypes.string_at(0)  # a real bad read, not a signal sent
elif name == "SIGABRT":
    os.abort()
else:
    os.kill(os.getpid(), getattr(signal, name))
raise SystemExit("still alive after " + name)
