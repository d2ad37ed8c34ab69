"""A coroutine waits for the result of another one that it has given to its own event loop."""

import asyncio


async def fetch(name):
    await asyncio.sleep(0)
    return name.upper()


class Client:
    def __init__(self, loop):
        self.loop = loop

    def get(self, name):
        return asyncio.run_coroutine_threadsafe(fetch(name), self.loop).result()


async def main():
    client = Client(asyncio.get_running_loop())
    print(client.get("weights"))


asyncio.run(main())
