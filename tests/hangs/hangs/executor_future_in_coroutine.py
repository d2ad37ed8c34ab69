"""A coroutine waits for a thread of a pool without awaiting it, and the thread waits for the coroutine's loop."""

import asyncio
from concurrent.futures import ThreadPoolExecutor


async def lookup(key):
    return {"lr": 0.1}[key]


def configure(loop):
    return asyncio.run_coroutine_threadsafe(lookup("lr"), loop).result()


async def main():
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as pool:
        print(pool.submit(configure, loop).result())


asyncio.run(main())
