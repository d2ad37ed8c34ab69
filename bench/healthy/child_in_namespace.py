# waits for a child that computes in a namespace of its own, where it is process 1
import subprocess, sys

WORK = "import time\nend = time.monotonic() + 13\nwhile time.monotonic() < end: pass"
subprocess.run(["unshare", "--user", "--pid", "--fork", sys.executable, "-c", WORK], check=True)
