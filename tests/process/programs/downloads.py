import socket, sys

port, timeout = int(sys.argv[1]), float(sys.argv[2])
connection = socket.create_connection(("127.0.0.1", port))
connection.settimeout(timeout or None)
while connection.recv(4096):
    pass
