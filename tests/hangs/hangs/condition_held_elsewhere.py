"""A thread keeps a condition's lock while it waits for an upload; another has given the lock back in its own wait."""

import threading

ready = threading.Condition()
uploaded = threading.Event()
shards = []


def consume():
    with ready:
        while not shards:
            ready.wait()


def publish():
    with ready:
        uploaded.wait()
        shards.append(1)
        ready.notify()


threading.Thread(target=consume, name="consumer").start()
threading.Thread(target=publish, name="publisher").start()
threading.Event().wait(0.5)
with ready:
    print(len(shards))
