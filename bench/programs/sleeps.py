# sleeps for longer than it is given at first
import time

time.sleep(8.0)
