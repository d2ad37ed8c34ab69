import queue, threading

event, items = threading.Event(), queue.Queue()


def work():
    while True:
        try:
            item = items.get(timeout=0.7)
        except queue.Empty:
            continue
        item()


threading.Thread(target=work).start()
while not event.wait(0.5):
    pass
