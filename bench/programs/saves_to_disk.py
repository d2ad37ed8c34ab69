# writes and waits for the disk
import os
import tempfile
import time

end = time.monotonic() + 8.0
with tempfile.TemporaryFile() as file:
    while time.monotonic() < end:
        file.seek(0)
        file.write(os.urandom(1_000_000))
        file.flush()
        os.fsync(file.fileno())
        time.sleep(0.1)
