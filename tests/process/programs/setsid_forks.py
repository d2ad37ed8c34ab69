import os
import time

end = time.monotonic() + 2  # should nobody stop it
while time.monotonic() < end:
    if os.fork() == 0:
        os.setsid()
