"""One of two workers fails before the barrier at which the other one and the main thread wait."""

import threading


class Trainer:
    def __init__(self, shards):
        self.shards = shards
        self.step_done = threading.Barrier(len(shards) + 1)

    def work(self, index):
        total = sum(self.shards[index])
        self.step_done.wait()
        print(index, total)

    def run(self):
        for index in range(len(self.shards)):
            threading.Thread(target=self.work, args=(index,)).start()
        self.step_done.wait()


Trainer([[1, 2], [3, "four"]]).run()
