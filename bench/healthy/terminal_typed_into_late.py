# an interactive Python on a pseudo terminal, into which something is typed late
import os, pty, sys, time

pid, terminal = pty.fork()
if not pid:
    os.execv(sys.executable, [sys.executable, "-i", "-q"])
time.sleep(13)
os.write(terminal, b"exit()\n")
try:
    while os.read(terminal, 1024):
        pass
except OSError:
    os.waitpid(pid, 0)
