import multiprocessing as m, time

if __name__ == "__main__":
    with m.Manager() as g:
        d = g.dict()
        time.sleep(7.5)
