import multiprocessing as m, time

if __name__ == "__main__":
    with m.Pool(2) as p:
        p.map(time.sleep, [7, 7])
