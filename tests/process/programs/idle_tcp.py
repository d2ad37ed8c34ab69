import socket, threading, time

s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())
a, _ = s.accept()


def f():
    time.sleep(8)
    a.send(b"x")


threading.Thread(target=f).start()
c.recv(1)
