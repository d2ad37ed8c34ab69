# waits for a client of multiprocessing.connection, which comes late
import subprocess, sys
from multiprocessing.connection import Listener

with Listener() as listener:
    code = f"import time\nfrom multiprocessing.connection import Client\ntime.sleep(13)\nClient({listener.address!r}).send(1)"
    child = subprocess.Popen([sys.executable, "-c", code])
    with listener.accept() as client:
        client.recv()
    child.wait()
