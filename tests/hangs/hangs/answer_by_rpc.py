"""A worker is asked by rpc for parameters that are ready only when the one that asks has sent its own."""

import os
import socket
import threading

import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

is_ready = threading.Event()


def push(value):
    is_ready.set()
    return value


def pull():
    is_ready.wait()
    return 1


def run(rank, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    name = ["trainer", "server"][rank]
    rpc.init_rpc(name, rank=rank, world_size=2, rpc_backend_options=rpc.TensorPipeRpcBackendOptions(rpc_timeout=3600))
    if name == "trainer":
        print(rpc.rpc_sync("server", pull), rpc.rpc_sync("server", push, (1,)))
    rpc.shutdown()


if __name__ == "__main__":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(run, args=(port,), nprocs=2, start_method="fork")
