"""A spawned child fails before it has read its arguments, which are larger than a pipe."""

import multiprocessing as mp


def train(weights):
    print(len(weights))


ctx = mp.get_context("spawn")
trainer = ctx.Process(target=train, args=(bytes(1 << 20),))
trainer.start()
trainer.join()
