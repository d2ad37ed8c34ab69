# looks again and again whether a child has ended, which works now and then
import subprocess
import sys
import time

WORK = "import time; [(sum(range(5 * 10**6)), time.sleep(0.3)) for _ in range(16)]"
child = subprocess.Popen([sys.executable, "-c", WORK])
while child.poll() is None:
    time.sleep(0.05)
assert child.returncode == 0
