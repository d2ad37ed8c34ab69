"""What a child runs before its program waits for something that only the parent has."""

import os
import subprocess

reading, writing = os.pipe()


def limit():
    os.read(reading, 1)


converter = subprocess.Popen(["true"], preexec_fn=limit)
converter.wait()
