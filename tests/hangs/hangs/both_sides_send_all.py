"""Client and server both send before either receives, more than the buffers of a socket hold."""

import socket
import threading

server = socket.create_server(("127.0.0.1", 0))
PAYLOAD = bytes(1 << 26)


def serve():
    peer, _ = server.accept()
    with peer:
        peer.sendall(PAYLOAD)
        peer.recv(1 << 20)


threading.Thread(target=serve, name="server", daemon=True).start()
client = socket.create_connection(server.getsockname())
client.sendall(PAYLOAD)
client.recv(1 << 20)
