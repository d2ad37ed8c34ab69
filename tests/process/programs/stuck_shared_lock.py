import multiprocessing


def work(lock):
    lock.acquire()


if __name__ == "__main__":
    lock = multiprocessing.Lock()
    lock.acquire()
    worker = multiprocessing.Process(target=work, args=(lock,))
    worker.start()
    worker.join()
