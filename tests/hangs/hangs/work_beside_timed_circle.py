"""Two threads take two locks in opposite order, but give up after some minutes, while a third works on."""

import threading
from itertools import count

weights, optimizer, both = threading.Lock(), threading.Lock(), threading.Barrier(2)


def work():
    for step in count():
        hash(str(step))


def take(first, second):
    with first:
        both.wait()
        second.acquire(timeout=300)


threading.Thread(target=work, daemon=True).start()
threading.Thread(target=take, args=(weights, optimizer), daemon=True).start()
take(optimizer, weights)
