# polls a queue whose producer is slow
import queue, threading, time

items = queue.Queue()
threading.Thread(target=lambda: (time.sleep(13), items.put(None))).start()
while True:
    try:
        item = items.get(timeout=0.5)
    except queue.Empty:
        continue
    if item is None:
        break
