"""A task of a pool raises an error that needs two arguments; the thread that unpickles it ends, and no result comes."""

from multiprocessing import get_context


class ShardError(Exception):
    def __init__(self, shard, reason):
        super().__init__(f"{shard}: {reason}")


def load(shard):
    if shard == 2:
        raise ShardError(shard, "checksum")
    return shard


if __name__ == "__main__":
    with get_context("fork").Pool(2) as pool:
        print(pool.map(load, range(4)))
