"""The main rank saves a checkpoint, in the middle of which a gather of all ranks hides; the others go on."""

import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist


class Checkpointer:
    def __init__(self, folder):
        self.folder = folder

    def save(self, state):
        states = [None] * dist.get_world_size()
        dist.all_gather_object(states, state)
        torch.save(states, os.path.join(self.folder, "best.pt"))


def train(folder):
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)
    checkpointer = Checkpointer(folder)
    loss = torch.rand(1)
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        checkpointer.save({"loss": loss})
    dist.broadcast(loss, src=0)
    dist.destroy_process_group()


def launch(size):
    folder = tempfile.mkdtemp()
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, folder], env=os.environ | {"RANK": str(rank), "WORLD_SIZE": str(size)}
        )
        for rank in range(size)
    ]
    return [rank.wait() for rank in ranks]


if __name__ == "__main__":
    print(launch(3)) if len(sys.argv) == 1 else train(sys.argv[1])
