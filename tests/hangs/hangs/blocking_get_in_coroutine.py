"""A coroutine takes from a queue of threads, and so keeps the coroutine from running that would put."""

import asyncio
import queue

batches = queue.Queue()


async def produce():
    await asyncio.sleep(0.01)
    batches.put([1, 2])


async def consume():
    return sum(batches.get())


async def main():
    _, total = await asyncio.gather(produce(), consume())
    print(total)


asyncio.run(main())
