import time

time.sleep(8)
