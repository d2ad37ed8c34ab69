# asyncio: a wait with a timeout, in a thread beside one that polls
import asyncio, threading


async def main():
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 13)
    except TimeoutError:
        pass


thread = threading.Thread(target=asyncio.run, args=(main(),))
thread.start()
while thread.is_alive():
    thread.join(0.5)
