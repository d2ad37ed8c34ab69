"""The parent waits for a message of any of its children, which wait for their first order."""

import multiprocessing as mp
from multiprocessing.connection import wait


def serve(conn):
    for order in iter(conn.recv, "stop"):
        conn.send(order)


if __name__ == "__main__":
    context, connections = mp.get_context("fork"), []
    for _ in range(2):
        ours, theirs = context.Pipe()
        context.Process(target=serve, args=(theirs,), daemon=True).start()
        connections.append(ours)
    for ready in wait(connections):
        print(ready.recv())
