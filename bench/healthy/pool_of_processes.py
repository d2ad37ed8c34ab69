# asks a pool of processes whether it is done
import multiprocessing as mp, time

if __name__ == "__main__":
    with mp.Pool(2) as pool:
        result = pool.map_async(time.sleep, [13, 1])
        while not result.ready():
            result.wait(0.5)
