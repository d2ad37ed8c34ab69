"""A client reads a line of a peer that has sent the line without its end."""

import socket


class Connection:
    def __init__(self):
        self.ours, self.theirs = socket.socketpair()
        self.lines = self.ours.makefile("r")

    def next(self):
        return self.lines.readline()


connection = Connection()
connection.theirs.sendall(b"loss=0.5")
print(connection.next())
