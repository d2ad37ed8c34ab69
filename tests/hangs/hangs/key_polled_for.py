"""A worker looks again and again for a key of the store that its parent has written otherwise, and waits for it."""

import time
from datetime import timedelta
from multiprocessing import get_context

from torch.distributed import TCPStore

LIMIT = timedelta(days=1)


def load(port):
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=LIMIT)
    while not store.check(["weights"]):
        time.sleep(1)
    store.set("loaded", "1")


if __name__ == "__main__":
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=LIMIT, wait_for_workers=False)
    get_context("fork").Process(target=load, args=(store.port,)).start()
    store.set("weight", "1")
    store.wait(["loaded"])
