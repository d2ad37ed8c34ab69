# waits for a condition with a timeout, beside a thread that polls
import threading

condition, stop = threading.Condition(), threading.Event()


def poll():
    while not stop.wait(0.5):
        pass


threading.Thread(target=poll).start()
with condition:
    condition.wait_for(lambda: False, timeout=13)
stop.set()
