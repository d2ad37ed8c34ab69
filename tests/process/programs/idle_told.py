import os
import pathlib
import signal
import threading

told = threading.Event()
signal.signal(signal.SIGUSR1, lambda *_: told.set())
pathlib.Path("pid").write_text(str(os.getpid()))
told.wait()
