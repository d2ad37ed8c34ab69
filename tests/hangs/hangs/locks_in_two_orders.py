"""Two threads take the locks of three shards one after the other, the second one in reverse."""

import threading
import time

locks = {shard: threading.Lock() for shard in "abc"}


def update(shards):
    for shard in shards:
        locks[shard].acquire(); time.sleep(0.3)
    for shard in shards:
        locks[shard].release()


for shards in ("abc", "cba"):
    threading.Thread(target=update, args=(shards,), name=f"update-{shards}").start()
