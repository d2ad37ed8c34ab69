"""The consumer of a bounded queue stops at the first bad batch, and the producer is joined."""

import queue
import threading


def produce(batches, count):
    for number in range(count):
        batches.put(number)
    batches.put(None)


def consume(batches):
    while (batch := batches.get()) is not None:
        if batch == 3:
            break


prefetched = queue.Queue(maxsize=2)
threads = [
    threading.Thread(target=produce, args=(prefetched, 100), name="prefetch"),
    threading.Thread(target=consume, args=(prefetched,)),
]
for thread in threads:
    thread.start()
[thread.join() for thread in threads]
