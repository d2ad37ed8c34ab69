# ranks that disagree, with a timeout that ends that
import datetime, os, socket

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def step(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=13))
    try:
        if rank == 0:
            dist.all_reduce(torch.ones(4))
        else:
            dist.barrier()
            dist.barrier()
    except RuntimeError:
        os._exit(0)


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.spawn(step, args=(port,), nprocs=2)
