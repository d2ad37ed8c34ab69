import subprocess
import sys

done = subprocess.run([sys.executable, "alone.py", sys.argv[1]])
assert done.returncode == 0, done.returncode
