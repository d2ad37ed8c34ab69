# a child that polls for ever is given some time
import subprocess, sys

child = subprocess.Popen([sys.executable, "-c", "import threading\nwhile not threading.Event().wait(0.5): pass"])
try:
    child.wait(timeout=13)
except subprocess.TimeoutExpired:
    child.kill()
child.wait()
