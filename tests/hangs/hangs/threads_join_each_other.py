"""Two threads wait for the end of each other."""

import threading

started = threading.Event()


def read():
    started.wait()
    writer.join()


def write():
    started.wait()
    reader.join()


reader, writer = threading.Thread(target=read, name="reader"), threading.Thread(target=write, name="writer")
reader.start(), writer.start()
started.set()
