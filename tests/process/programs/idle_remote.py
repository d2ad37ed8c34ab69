"""Wait for a byte from a peer that is not of this tree."""

import os
import socket

socket.create_connection(("127.0.0.1", int(os.environ["PORT"]))).recv(1)
