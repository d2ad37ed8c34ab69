"""A consumer waits for more than the producer has put."""

import queue
import threading

numbers = queue.Queue()


def produce():
    for number in range(3):
        numbers.put(number)


threading.Thread(target=produce, name="producer").start()
for _ in range(4):
    print(numbers.get())
