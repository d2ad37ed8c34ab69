"""A heartbeat thread of each rank reduces on a group of its own; one rank's has ended with an exception."""

import socket
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


class Heartbeat(threading.Thread):
    def __init__(self, rank, group):
        super().__init__(name="heartbeat")
        self.rank, self.group = rank, group

    def run(self):
        for beat in range(3):
            if self.rank == 1 and beat == 2:
                raise OSError("no space left on device")
            dist.all_reduce(torch.ones(1), group=self.group)


def main(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    group = dist.new_group()
    heartbeat = Heartbeat(rank, group)
    heartbeat.start()
    try:
        dist.all_reduce(torch.ones(4))
    finally:
        heartbeat.join()
    dist.barrier()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(main, args=(port,), nprocs=2, start_method="fork")
