# two threads take two locks in opposite orders
import threading

first, second, both = threading.Lock(), threading.Lock(), threading.Barrier(2)


def take(mine, other):
    with mine:
        both.wait()
        with other:
            pass


threads = [threading.Thread(target=take, args=pair) for pair in ((first, second), (second, first))]
for thread in threads:
    thread.start()
