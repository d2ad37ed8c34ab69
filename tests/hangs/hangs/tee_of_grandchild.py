"""The output of a program is read to its end, but a process that it has left behind keeps the pipe open."""

import subprocess

output = subprocess.check_output(["sh", "-c", "sleep 1000 & echo started"], text=True)
print(output)
