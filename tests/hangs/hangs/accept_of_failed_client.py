"""A server accepts one client, whose thread has failed before it connected."""

import socket
import threading


def connect(port):
    address = ("127.0.0.1", port.bit_size)
    socket.create_connection(address).sendall(b"hello")


with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    server.listen()
    threading.Thread(target=connect, args=(server.getsockname()[1],), name="client").start()
    connection, address = server.accept()
