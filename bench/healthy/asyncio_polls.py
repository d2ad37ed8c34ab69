# asyncio: a task polls, and a timer ends that
import asyncio


async def main():
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(13, event.set)
    while not event.is_set():
        await asyncio.sleep(0.2)


asyncio.run(main())
