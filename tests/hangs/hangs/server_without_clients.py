"""A server in the main thread serves until somebody shuts it down, and nobody does."""

from xmlrpc.server import SimpleXMLRPCServer


class Metrics:
    def __init__(self):
        self.server = SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False)

    def serve(self):
        self.server.serve_forever()


Metrics().serve()
