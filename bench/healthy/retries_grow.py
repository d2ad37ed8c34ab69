# tries again with growing pauses, and succeeds at the last try
import time

for pause in (1, 2, 4, 8):
    time.sleep(pause)
