"""A program is asked for its output while its input is still open, which it reads to the end."""

import subprocess
import sys


class Sorter:
    def __init__(self):
        code = "import sys; print(*sorted(sys.stdin.read().split()))"
        self.process = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1, text=True)

    def sort(self, words):
        self.process.stdin.write(" ".join(words))
        self.process.stdin.flush()
        return self.process.stdout.readline().split()


print(Sorter().sort(["b", "a"]))
