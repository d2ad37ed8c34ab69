import signal, threading

l = threading.Lock()
l.acquire()


class X(Exception):
    pass


def h(*a):
    raise X


signal.signal(signal.SIGALRM, h)
signal.setitimer(signal.ITIMER_REAL, 8)
try:
    l.acquire()
except X:
    pass
