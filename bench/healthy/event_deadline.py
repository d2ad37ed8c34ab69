# polls an event until a deadline, and gives up
import threading, time

end, event = time.monotonic() + 13, threading.Event()
while not event.wait(0.5):
    if time.monotonic() > end:
        break
