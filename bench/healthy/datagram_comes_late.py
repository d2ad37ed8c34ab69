# waits for a datagram, which another process sends late
import socket, subprocess, sys

own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
own.bind(("127.0.0.1", 0))
SEND = f"import socket, time\ntime.sleep(13)\nsocket.socket(2, 2).sendto(b'x', {own.getsockname()})"
child = subprocess.Popen([sys.executable, "-c", SEND])
own.recv(1)
child.wait()
