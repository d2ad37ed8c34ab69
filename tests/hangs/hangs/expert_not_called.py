"""A rank leaves the last batch out because it is empty, and goes on to the evaluation; the other's backward waits."""

import os
import socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


class Trainer:
    def __init__(self, rank):
        self.rank = rank
        self.model = DistributedDataParallel(torch.nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def fit(self, batches):
        for batch in batches:
            if not len(batch):
                continue
            self.optimizer.zero_grad()
            self.model(batch).mean().backward()
            self.optimizer.step()

    def evaluate(self):
        losses = [torch.zeros(1) for _ in range(dist.get_world_size())]
        dist.all_gather(losses, torch.ones(1))
        return losses


def main(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    trainer = Trainer(rank)
    trainer.fit(torch.ones(3 + 3 * (1 - rank), 4).split(3) if rank == 0 else [torch.ones(3, 4), torch.ones(0, 4)])
    print(trainer.evaluate())


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(main, args=(port,), nprocs=2, start_method="fork")
