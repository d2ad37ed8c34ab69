"""A client connects to a server that is too busy to accept, and whose backlog is full."""

import socket

server = socket.socket()
server.bind(("127.0.0.1", 0))
server.listen(0)
clients = [socket.socket() for _ in range(4)]
for client in clients:
    client.connect(server.getsockname())
