"""The producer takes a permit for each buffer; the consumer, which gives them back, has ended with an error."""

import threading

free, filled = threading.Semaphore(1), threading.Semaphore(0)
buffers = []


def consume():
    filled.acquire()
    print(buffers.pop().shape)
    free.release()


threading.Thread(target=consume, name="consumer").start()
free.acquire()
buffers.append(None)
filled.release()
free.acquire()
buffers.append("weights")
filled.release()
