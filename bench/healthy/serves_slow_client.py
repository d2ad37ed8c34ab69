# a server waits for its client, which comes late
import socket, subprocess, sys

CLIENT = "import socket, sys, time; time.sleep(13); socket.create_connection(('127.0.0.1', int(sys.argv[1])))"
server = socket.create_server(("127.0.0.1", 0))
child = subprocess.Popen([sys.executable, "-c", CLIENT, str(server.getsockname()[1])])
server.settimeout(0.5)
while True:
    try:
        server.accept()
        break
    except TimeoutError:
        continue
child.wait()
