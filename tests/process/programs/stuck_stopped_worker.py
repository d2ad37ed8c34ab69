"""A pool's only worker is stopped by a signal, while a thread of a library looks once in a while how it is."""

import multiprocessing
import os
import signal
import sys
import threading
import time
from pathlib import Path

LIBRARY = "import os, time\ndef look():\n    while True:\n        time.sleep(0.5)\n        os.getppid()\n"

if __name__ == "__main__":
    folder = Path("site-packages")
    folder.mkdir(exist_ok=True)
    (folder / "keeper.py").write_text(LIBRARY)
    sys.path.insert(0, str(folder.resolve()))
    keeper = __import__("keeper")
    pool = multiprocessing.get_context("fork").Pool(1)
    worker = pool.apply(os.getpid)
    threading.Thread(target=keeper.look, daemon=True).start()
    os.kill(worker, signal.SIGSTOP)
    pool.apply(time.time)
