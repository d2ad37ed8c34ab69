"""The main thread waits for a coroutine in a loop's thread, which waits for the main thread's reply."""

import asyncio
import queue
import threading

replies = queue.Queue()
loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, name="loop", daemon=True).start()


async def confirm(question):
    print(question)
    return replies.get()


confirmed = asyncio.run_coroutine_threadsafe(confirm("overwrite?"), loop).result()
replies.put(confirmed)
