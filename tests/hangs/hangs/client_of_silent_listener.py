"""A client connects to a listener that accepts nobody."""

import socket
from multiprocessing.connection import Client

server = socket.create_server(("127.0.0.1", 0))
with Client(server.getsockname(), authkey=b"secret") as connection:
    print(connection.recv())
