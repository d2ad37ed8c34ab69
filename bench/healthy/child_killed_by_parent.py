# a child that polls for ever is ended by its parent after a time
import subprocess, sys, time

child = subprocess.Popen([sys.executable, "-c", "import threading\nwhile not threading.Event().wait(0.5): pass"])
time.sleep(13)
child.kill()
child.wait()
