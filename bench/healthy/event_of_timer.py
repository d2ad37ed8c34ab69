# polls an event that a timer sets
import threading

event = threading.Event()
threading.Timer(13, event.set).start()
while not event.wait(0.5):
    pass
