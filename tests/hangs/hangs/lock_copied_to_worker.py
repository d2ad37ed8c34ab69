"""A child is forked while a thread holds a lock that it wants, and its parent waits for what it would put."""

import multiprocessing
import threading

lock, entered, done = threading.RLock(), threading.Event(), threading.Event()


def refresh():
    with lock:
        entered.set()
        done.wait()


def answer(answers):
    with lock:
        answers.put(1)


threading.Thread(target=refresh).start()
entered.wait()
context = multiprocessing.get_context("fork")
answers = context.SimpleQueue()
context.Process(target=answer, args=(answers,)).start()
done.set()
answers.get()
