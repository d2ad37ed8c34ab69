import socket, threading, time

server = socket.create_server(("127.0.0.1", 0))
asker = socket.create_connection(server.getsockname())
answerer, _ = server.accept()


def answer():
    while answerer.recv(100):
        answerer.sendall(b"x" * 100)


threading.Thread(target=answer).start()
while True:
    asker.sendall(b"?" * 100)
    asker.recv(100)
    time.sleep(0.1)
