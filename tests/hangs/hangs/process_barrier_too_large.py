"""A barrier for three processes, of which only two are started."""

import multiprocessing as mp


def work(rank, together):
    together.wait()
    print(rank)


if __name__ == "__main__":
    context = mp.get_context("fork")
    together = context.Barrier(3)
    workers = [context.Process(target=work, args=(rank, together)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
