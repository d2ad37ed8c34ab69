import signal

signal.signal(signal.SIGALRM, lambda *a: None)
signal.alarm(8)
signal.pause()
