"""Two ranks are started for a job that expects three."""

import os
import socket
import subprocess
import sys

import torch.distributed as dist


def main():
    dist.init_process_group(backend="gloo")
    dist.barrier()


if __name__ == "__main__":
    if "RANK" in os.environ:
        main()
        sys.exit()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    job = os.environ | {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [subprocess.Popen([sys.executable, __file__], env=job | {"RANK": str(rank)}) for rank in range(2)]
    print([rank.wait() for rank in ranks])
