# an alarm ends a loop that polls for ever
import signal, threading


def ring(*_):
    raise TimeoutError


signal.signal(signal.SIGALRM, ring)
signal.alarm(13)
try:
    while not threading.Event().wait(0.5):
        pass
except TimeoutError:
    pass
