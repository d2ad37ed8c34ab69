# polls a queue, and leaves its loop when that has been empty for long
import queue

items = queue.Queue()
while True:
    try:
        item = items.get(timeout=12)
    except queue.Empty:
        break
