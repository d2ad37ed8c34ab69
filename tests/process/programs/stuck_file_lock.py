import fcntl
import tempfile

with tempfile.NamedTemporaryFile(dir=".") as first, open(first.name) as second:
    fcntl.flock(first, fcntl.LOCK_EX)
    fcntl.flock(second, fcntl.LOCK_EX)
