"""A distributed job for the bench: many gloo ranks, each with many parked threads, one of them elsewhere.

`python ranks_many.py [RANKS [THREADS]]` imports torch once and forks the ranks, so that memory stays small.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading

import torch
import torch.distributed as dist


def wait_for_data(parked: threading.Event) -> None:
    """Wait for what never comes: the loader of the rank that is elsewhere."""
    parked.wait()


def park(parked: threading.Event) -> None:
    """Wait, as the threads of a program do that have nothing to do."""
    parked.wait()


def train(rank: int, size: int, threads: int, store: str) -> None:
    """Take part in two collectives; the rank in the middle does not come to the second one."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    never = threading.Event()
    for number in range(threads - 1):
        threading.Thread(target=park, args=(never,), name=f"parked-{number}", daemon=True).start()
    gradients = torch.ones(4)
    dist.all_reduce(gradients)
    if rank == 0:
        print("ready", flush=True)
    if rank == size // 2:
        wait_for_data(never)
    dist.all_reduce(gradients)


def main() -> None:
    """Fork the ranks, and wait for them."""
    size, threads = (*map(int, sys.argv[1:]), *(64, 20)[len(sys.argv) - 1 :])
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(size):
            child = os.fork()
            if not child:
                train(rank, size, threads, f"{folder}/store")
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)


if __name__ == "__main__":
    main()
