# waits for a signal, which another program sends late
import os, signal, subprocess

signal.signal(signal.SIGUSR1, lambda *_: None)
child = subprocess.Popen(["sh", "-c", f"sleep 13; kill -USR1 {os.getpid()}"])
signal.pause()
child.wait()
