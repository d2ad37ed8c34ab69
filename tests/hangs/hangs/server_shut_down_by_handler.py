"""A request handler shuts its own server down, which waits for the handler."""

import socketserver
import threading
from socket import create_connection


class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        if self.request.recv(4) == b"stop":
            self.server.shutdown()


with socketserver.TCPServer(("127.0.0.1", 0), Handler) as server:
    service = threading.Thread(target=server.serve_forever, name="service")
    service.start()
    create_connection(server.server_address).sendall(b"stop")
    service.join()
