import os, time

while not os.path.exists("nobody makes this"):
    time.sleep(0.05)
