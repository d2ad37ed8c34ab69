# asyncio: tasks wait for each other, and one of them for a timer
import asyncio


async def main():
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(13, event.set)
    await asyncio.gather(event.wait(), event.wait())


asyncio.run(main())
