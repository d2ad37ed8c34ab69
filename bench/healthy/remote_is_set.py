# polls whether something is set, which another process says after some time
import multiprocessing as mp, time


def work(event):
    time.sleep(13)
    event.set()


if __name__ == "__main__":
    with mp.Manager() as manager:
        event = manager.Event()
        child = mp.Process(target=work, args=(event,))
        child.start()
        while not event.is_set():
            event.wait(0.5)
        child.join()
