import ctypes, signal, struct, threading

libc = ctypes.CDLL(None)
ev = struct.pack("=qii48x", 0, signal.SIGUSR1, 0)
t = ctypes.c_void_p()


class X(Exception):
    pass


def h(*a):
    raise X


signal.signal(signal.SIGUSR1, h)
assert libc.timer_create(1, ev, ctypes.byref(t)) == 0
assert libc.timer_settime(t, 0, struct.pack("4q", 0, 0, 8, 0), None) == 0
l = threading.Lock()
l.acquire()
try:
    l.acquire()
except X:
    pass
