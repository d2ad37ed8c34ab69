# polls for a child that sleeps
import subprocess, time

child = subprocess.Popen(["sleep", "13"])
while child.poll() is None:
    time.sleep(0.5)
