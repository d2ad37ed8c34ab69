import multiprocessing


def work(queue):
    queue.get()


if __name__ == "__main__":
    queue = multiprocessing.Queue()
    worker = multiprocessing.Process(target=work, args=(queue,))
    worker.start()
    worker.join()
