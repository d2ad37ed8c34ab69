# joins a process that sleeps, a little at a time
import multiprocessing as mp, time

if __name__ == "__main__":
    child = mp.Process(target=time.sleep, args=(13,))
    child.start()
    while child.is_alive():
        child.join(0.5)
