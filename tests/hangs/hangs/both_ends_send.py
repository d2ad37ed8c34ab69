"""Parent and child both send more than the pipe holds before either receives."""

import multiprocessing as mp


def exchange(conn, gradients):
    conn.send_bytes(gradients)
    return conn.recv_bytes()


if __name__ == "__main__":
    ours, theirs = mp.Pipe()
    peer = mp.get_context("fork").Process(target=exchange, args=(theirs, bytes(1 << 22)))
    peer.start()
    print(len(exchange(ours, bytes(1 << 22))))
    peer.join()
