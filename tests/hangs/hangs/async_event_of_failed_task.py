"""The task that should set an event has failed, and nobody has looked at it."""

import asyncio


async def warm_up(is_warm, sizes):
    await asyncio.sleep(0)
    print(1 / len(sizes))
    is_warm.set()


async def serve():
    is_warm = asyncio.Event()
    task = asyncio.create_task(warm_up(is_warm, []))
    await is_warm.wait()
    await task


loop = asyncio.new_event_loop()
loop.run_until_complete(serve())
