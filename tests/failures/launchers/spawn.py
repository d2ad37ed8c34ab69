import sys
import time
import torch.multiprocessing as mp
from fail import fail


def work(rank, way):
    if rank == 1:
        fail(way)
    time.sleep(60)


if __name__ == "__main__":
    mp.spawn(work, args=(sys.argv[1],), nprocs=2)
