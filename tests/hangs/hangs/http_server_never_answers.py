"""A download waits for a server that takes the request and never answers."""

import socket
import threading
import urllib.request

listener = socket.create_server(("127.0.0.1", 0))


def serve():
    connection, _ = listener.accept()
    with connection:
        while connection.recv(4096):
            pass


threading.Thread(target=serve, daemon=True).start()
url = "http://127.0.0.1:%d/weights.pt" % listener.getsockname()[1]
print(len(urllib.request.urlopen(url).read()))
