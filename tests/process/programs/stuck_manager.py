import multiprocessing

if __name__ == "__main__":
    with multiprocessing.Manager() as manager:
        lock = manager.Lock()
        lock.acquire()
        lock.acquire()
