import threading

first, second = threading.Lock(), threading.Lock()
both = threading.Barrier(2)


def take(held, wanted):
    with held:
        both.wait()
        with wanted:
            pass


threads = [threading.Thread(target=take, args=pair) for pair in ((first, second), (second, first))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
