import queue

try:
    queue.Queue().get(timeout=8)
except queue.Empty:
    pass
