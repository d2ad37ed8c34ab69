# a subclass of Event counts how often it was waited for
import threading


class Event(threading.Event):
    count = 0

    def wait(self, timeout=None):
        self.count += 1
        return super().wait(timeout) or self.count > 26


event = Event()
while not event.wait(0.5):
    pass
