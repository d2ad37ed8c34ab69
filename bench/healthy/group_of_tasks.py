# tasks of asyncio wait for each other by a condition, a queue and a lock; the last one waits for a slow program
import asyncio


async def work(queue, lock):
    async with lock:
        child = await asyncio.create_subprocess_exec("sleep", "13")
        await child.wait()
    await queue.put(1)


async def main():
    queue, lock = asyncio.Queue(), asyncio.Lock()
    await asyncio.gather(work(queue, lock), queue.get(), lock.acquire())


asyncio.run(main())
