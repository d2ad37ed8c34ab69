"""A task that should work off a queue has failed, and the queue is joined."""

import asyncio


async def work(jobs):
    while True:
        path = await jobs.get()
        print(path.strip())
        jobs.task_done()


async def main():
    jobs = asyncio.Queue()
    for path in ("a", None, "b"):
        jobs.put_nowait(path)
    worker = asyncio.create_task(work(jobs))
    await jobs.join()
    worker.cancel()


asyncio.run(main())
