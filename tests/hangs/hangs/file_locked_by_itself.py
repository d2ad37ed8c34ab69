"""A function locks a file that its caller has locked by another descriptor."""

import fcntl
import tempfile
from pathlib import Path

INDEX = Path(tempfile.mkdtemp()) / "index.lock"


def append(row):
    with INDEX.open("a") as index:
        fcntl.flock(index, fcntl.LOCK_EX)
        index.write(row)


def rebuild(rows):
    index = INDEX.open("w")
    fcntl.flock(index.fileno(), fcntl.LOCK_EX)
    for row in rows:
        append(row)


rebuild(["a", "b"])
