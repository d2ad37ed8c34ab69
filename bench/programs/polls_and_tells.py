# waits for what takes its time, and tells so now and then
import time

end = time.monotonic() + 8.0
while time.monotonic() < end:
    print("not yet there", flush=True)
    time.sleep(0.7)
