"""A child waits for the end of its parent's messages, but has inherited the sending end itself."""

import multiprocessing as mp


def collect(receiver):
    rows = []
    while True:
        try:
            rows.append(receiver.recv())
        except EOFError:
            return print(rows)


if __name__ == "__main__":
    mp.set_start_method("fork")
    receiver, sender = mp.Pipe(duplex=False)
    collector = mp.Process(target=collect, args=(receiver,), name="collector")
    collector.start()
    receiver.close()
    sender.send({"loss": 1.0})
    sender.close()
    collector.join()
