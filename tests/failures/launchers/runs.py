import subprocess
import sys

subprocess.run([sys.executable, "alone.py", sys.argv[1]], check=True)
