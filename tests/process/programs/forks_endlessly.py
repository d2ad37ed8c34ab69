import contextlib
import os
import time

end = time.monotonic() + 5  # should nobody stop it
while time.monotonic() < end:
    with contextlib.suppress(OSError):  # the machine has no process left
        os.fork()
time.sleep(60)  # whoever watches it may be late
