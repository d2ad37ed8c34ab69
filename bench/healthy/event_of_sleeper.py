# polls an event that a thread sets after a sleep
import threading, time

event = threading.Event()
threading.Thread(target=lambda: (time.sleep(13), event.set())).start()
while not event.wait(0.5):
    pass
