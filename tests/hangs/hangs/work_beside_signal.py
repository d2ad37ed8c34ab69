"""A lock that its taker takes twice is released by a thread that works on."""

import threading

ready = threading.Lock()


def work():
    step = 0
    while step < 1e12:
        step += 1
    ready.release()


threading.Thread(target=work, daemon=True).start()
ready.acquire()
ready.acquire()
