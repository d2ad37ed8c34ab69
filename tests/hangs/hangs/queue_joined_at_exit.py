"""At the exit a hook waits for the items of a queue whose worker has failed."""

import atexit
import queue
import threading

checkpoints = queue.Queue()


def save():
    while True:
        name, weights = checkpoints.get()
        print(name, len(weights))
        checkpoints.task_done()


threading.Thread(target=save, name="saver", daemon=True).start()
atexit.register(checkpoints.join)
checkpoints.put(("first", None))
