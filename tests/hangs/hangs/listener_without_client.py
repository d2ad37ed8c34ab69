"""A listener waits for two clients, of which only one comes."""

import tempfile
import threading
from multiprocessing.connection import Client, Listener


def connect(address):
    with Client(address, authkey=b"secret") as connection:
        connection.send("ready")


with Listener(tempfile.mktemp(), authkey=b"secret") as listener:
    threading.Thread(target=connect, args=(listener.address,)).start()
    connections = [listener.accept() for _ in range(2)]
