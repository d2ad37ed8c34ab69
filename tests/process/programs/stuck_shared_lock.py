import multiprocessing


def work(lock):
    lock.acquire()


if __name__ == "__main__":
    lock = multiprocessing.Lock()
    lock.acquire()
    worker = multiprocessing.Process(target=work, args=(lock,))
    worker.start()
    spawn = multiprocessing.get_context("spawn")
    spawn.Process(target=(event := spawn.Event()).wait).start()
    worker.join()
