import multiprocessing


def work(event):
    event.wait()


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    event = context.Event()
    worker = context.Process(target=work, args=(event,))
    worker.start()
    worker.join()
