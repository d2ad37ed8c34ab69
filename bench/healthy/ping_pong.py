# two processes send each other a message now and then, with nothing between
import multiprocessing as mp, time


def answer(pipe):
    for _ in range(26):
        pipe.send(pipe.recv())


if __name__ == "__main__":
    mine, other = mp.Pipe()
    child = mp.Process(target=answer, args=(other,))
    child.start()
    for _ in range(26):
        mine.send(1)
        time.sleep(0.5)
        while not mine.poll(0.5):
            pass
        mine.recv()
    child.join()
