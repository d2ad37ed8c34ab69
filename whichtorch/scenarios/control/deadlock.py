# /// scenario
# summary = "two threads take two locks in opposite order"
# tags = ["control"]
# timeout = 60
# on_request = true
# expect = [{ outcome = "hang" }]
# ///
import threading

first, second = threading.Lock(), threading.Lock()
both_hold_one = threading.Barrier(2)


def take(mine, other):
    with mine:
        both_hold_one.wait()
        with other:
            print("unreachable")


threads = [
    threading.Thread(target=take, args=(first, second)),
    threading.Thread(target=take, args=(second, first)),
]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
