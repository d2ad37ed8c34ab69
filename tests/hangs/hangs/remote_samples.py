"""Workers ask a small server of the main process for samples; it takes their connections, and answers none."""

import socket
import threading

import torch
from torch.utils.data import DataLoader, Dataset

server = socket.create_server(("127.0.0.1", 0))
connections = []


def serve():
    while True:
        connections.append(server.accept())


class Remote(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        with socket.create_connection(server.getsockname()) as connection:
            connection.sendall(index.to_bytes(4, "big"))
            return torch.frombuffer(bytearray(connection.recv(4)), dtype=torch.int32)


threading.Thread(target=serve, name="sample server", daemon=True).start()
for sample in DataLoader(Remote(), num_workers=2, multiprocessing_context="fork"):
    print(sample)
