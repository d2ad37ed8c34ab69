# polls for a server that another program starts late
import socket, subprocess, sys, time

SERVER = (
    "import socket, sys, time; time.sleep(13); s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); s.accept()"
)
with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
server = subprocess.Popen([sys.executable, "-c", SERVER, str(port)])
while True:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        break
    except OSError:
        time.sleep(0.5)
server.wait()
