"""A task of a pool of one thread waits for another task of the same pool."""

from concurrent.futures import ThreadPoolExecutor, as_completed

pool = ThreadPoolExecutor(1)


def tokenize(text):
    return text.split()


def encode(texts):
    futures = [pool.submit(tokenize, text) for text in texts]
    return [len(future.result()) for future in as_completed(futures)]


print(*pool.map(encode, [["a b", "c"]]))
