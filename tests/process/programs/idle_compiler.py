"""Wait for children that work by turns, each hardly at all."""

import subprocess
import sys

for _ in range(3):
    subprocess.run([sys.executable, "-c", "import time; time.sleep(2.3)"], check=True)
