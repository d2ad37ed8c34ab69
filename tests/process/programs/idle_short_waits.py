import threading, time

e = threading.Event()
t = time.time()
while time.time() - t < 8:
    e.wait(0.005)
