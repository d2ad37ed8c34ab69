# polls a byte of shared memory, which another process sets late
import multiprocessing, time


def work(flag):
    time.sleep(13)
    flag.value = 1


if __name__ == "__main__":
    flag = multiprocessing.Value("b", 0)
    process = multiprocessing.Process(target=work, args=(flag,))
    process.start()
    while not flag.value:
        time.sleep(0.05)
    process.join()
