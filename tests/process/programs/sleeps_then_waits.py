# sleeps for so many seconds, then waits for what never comes
import os
import sys
import time

time.sleep(float(sys.argv[1]))
os.read(os.pipe()[0], 1)
