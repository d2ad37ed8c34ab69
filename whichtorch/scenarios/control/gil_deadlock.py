# /// scenario
# summary = "C code holds the GIL and joins a thread that needs it"
# tags = ["control"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "hang" }]
# ///
# The shape of the hang of at::mm on meta tensors, with nothing of torch in it.
import ctypes
import sys

if not sys.platform.startswith("linux"):
    print("pthread_t is a number on Linux only", file=sys.stderr)
    sys.exit(125)
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    print("this Python has no GIL", file=sys.stderr)
    sys.exit(125)

with_gil = ctypes.PyDLL(None)  # calls keep the GIL, those of CDLL release it
with_gil.pthread_join.argtypes = [ctypes.c_ulong, ctypes.c_void_p]


@ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
def body(_):
    print("unreachable")


thread = ctypes.c_ulong()
if with_gil.pthread_create(ctypes.byref(thread), None, body, None) != 0:
    print("no thread could be started", file=sys.stderr)
    sys.exit(125)
with_gil.pthread_join(thread, None)
