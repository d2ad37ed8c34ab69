"""A thread that waits for a condition has given back its mutex; another one holds it, and waits for a server."""

import queue
import threading
import time


class Buffer:
    def __init__(self):
        self.mutex = threading.Lock()
        self.not_empty = threading.Condition(self.mutex)
        self.not_full = threading.Condition(self.mutex)
        self.items = []

    def take(self):
        with self.mutex:
            while not self.items:
                self.not_empty.wait()
            self.not_full.notify()
            return self.items.pop()

    def refill(self, answers):
        with self.mutex:
            self.items.append(answers.get())
            self.not_empty.notify()

    def size(self):
        with self.mutex:
            return len(self.items)


buffer = Buffer()
threading.Thread(target=buffer.take, name="taker").start()
time.sleep(0.5)
threading.Thread(target=buffer.refill, args=(queue.Queue(),), name="refiller").start()
time.sleep(0.5)
print(buffer.size())
