import socket, struct

a, b = socket.socketpair()
a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 8, 0))
try:
    a.recv(1)
except BlockingIOError:
    pass
