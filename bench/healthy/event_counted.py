# polls an event a number of times
import threading

event = threading.Event()
for _ in range(26):
    event.wait(0.5)
