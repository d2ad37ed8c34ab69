# workers that ask a parameter server now and then, with long pauses
import multiprocessing as mp, time
from multiprocessing.managers import BaseManager


class Weights:
    def __init__(self):
        self.value = 0

    def add(self, number):
        self.value += number
        return self.value


class Server(BaseManager):
    pass


Server.register("Weights", Weights)


def work(weights):
    for _ in range(3):
        time.sleep(5)
        weights.add(1)


if __name__ == "__main__":
    with Server() as server:
        weights = server.Weights()
        workers = [mp.Process(target=work, args=(weights,)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
