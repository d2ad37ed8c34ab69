"""A pool is closed and joined while its worker waits for a reply of the main process."""

import multiprocessing as mp


def ask(question):
    conversation.send(question)
    return conversation.recv()


if __name__ == "__main__":
    mp.set_start_method("fork")
    ours, conversation = mp.Pipe()
    pool = mp.Pool(1)
    pool.apply_async(ask, ("which batch?",))
    pool.close()
    pool.join()
    print(ours.recv())
