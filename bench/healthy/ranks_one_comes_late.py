# a rank is started late by another program
import os, socket, subprocess, sys

import torch
import torch.distributed as dist

if len(sys.argv) == 1:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(probe.getsockname()[1]), WORLD_SIZE="2")
    late = subprocess.Popen(["sh", "-c", f"sleep 13; RANK=1 {sys.executable} {__file__} late"])
os.environ.setdefault("RANK", "0")
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(4))
dist.destroy_process_group()
