import ctypes, threading, time


def f():
    for _ in range(1000):
        pass


t = threading.Thread(target=lambda: [f() for _ in range(10)])
libc = ctypes.PyDLL(None)
t.start()
libc.usleep(8000000)
