"""Two futures wait for each other's results in a pool of two threads."""

from concurrent.futures import ThreadPoolExecutor, wait

futures = {}


def encode():
    while "decode" not in futures:
        pass
    return futures["decode"].result()


def decode():
    return futures["encode"].result() + 1


with ThreadPoolExecutor(2, thread_name_prefix="codec") as pool:
    futures["encode"] = pool.submit(encode)
    futures["decode"] = pool.submit(decode)
    done, _ = wait(futures.values())
    print([future.result() for future in done])
