import socket, sys, threading

connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
threading.Event().wait()
