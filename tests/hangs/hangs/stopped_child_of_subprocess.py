"""A script waits for a program with a timeout again and again; the program waits for a signal."""

import subprocess
import sys

program = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
while True:
    try:
        program.wait(timeout=1)
        break
    except subprocess.TimeoutExpired:
        print("still waiting")
