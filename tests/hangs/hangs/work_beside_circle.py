"""Two threads take two locks in opposite order, while a third works on."""

import threading
from itertools import count

weights, optimizer, both = threading.Lock(), threading.Lock(), threading.Barrier(2)


def work():
    for step in count():
        hash(str(step))


def take(first, second):
    with first:
        both.wait()
        with second:
            pass


threading.Thread(target=work, daemon=True).start()
threading.Thread(target=take, args=(weights, optimizer), daemon=True).start()
take(optimizer, weights)
