"""The script is through, but a thread that is no daemon waits for a client."""

import socket
import threading


def monitor():
    with socket.create_server(("127.0.0.1", 0)) as server:
        while True:
            connection, _ = server.accept()
            connection.sendall(b"ok")


threading.Thread(target=monitor).start()
print("trained")
