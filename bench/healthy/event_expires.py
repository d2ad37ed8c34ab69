# polls an event until an object says that it has expired
import threading, time


class Limit:
    end = time.time() + 13

    @property
    def expired(self):
        return time.time() > self.end


limit, event = Limit(), threading.Event()
while not limit.expired:
    event.wait(0.5)
