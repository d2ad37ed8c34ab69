"""A thread ends with an error between acquire and release."""

import threading

locks = [threading.Lock() for _ in range(2)]


def update(shard, values):
    locks[shard].acquire()
    mean = sum(values) / len(values)
    locks[shard].release()
    return mean


updater = threading.Thread(target=update, args=(1, []), name="updater")
updater.start()
updater.join()
for shard in range(2):
    print(update(shard, [1.0, 2.0]))
