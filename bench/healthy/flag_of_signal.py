# sleeps again and again until a signal sets a flag
import os, signal, subprocess, time

flag = []
signal.signal(signal.SIGUSR1, lambda *_: flag.append(1))
child = subprocess.Popen(["sh", "-c", f"sleep 13; kill -USR1 {os.getpid()}"])
while not flag:
    time.sleep(0.2)
child.wait()
