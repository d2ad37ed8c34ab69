# polls a queue of a process that works on the first item for long
import multiprocessing as mp, queue, time


def produce(items):
    time.sleep(13)
    items.put(1)


if __name__ == "__main__":
    items = mp.Queue()
    child = mp.Process(target=produce, args=(items,))
    child.start()
    while True:
        try:
            items.get(timeout=0.5)
        except queue.Empty:
            continue
        break
    child.join()
