"""Two coroutines take two locks of asyncio in opposite order."""

import asyncio


class Narration:
    def __init__(self, balance):
        self.balance, self.turn = balance, asyncio.Lock()


async def transfer(source, target, amount):
    async with source.turn:
        await asyncio.sleep(0.01)
        async with target.turn:
            source.balance -= amount
            target.balance += amount


async def settle():
    first, second = Narration(10), Narration(20)
    await asyncio.gather(transfer(first, second, 5), transfer(second, first, 1))


if __name__ == "__main__":
    with asyncio.Runner() as runner:
        runner.run(settle())
