"""Waits for a program that is not Python, and says when that has ended."""

import subprocess

subprocess.run(["sleep", "600"])
print("ended", flush=True)
