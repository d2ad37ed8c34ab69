import socket

near, far = socket.socketpair()
near.recv(1)
