"""A named pipe is opened for reading, and nobody opens it for writing."""

import os
import tempfile
from pathlib import Path

commands = Path(tempfile.mkdtemp()) / "commands"
os.mkfifo(commands)
with open(commands) as file:
    for command in file:
        print(command)
