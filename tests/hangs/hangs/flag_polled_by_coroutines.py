"""Coroutines look again and again at a flag, which the one that should set it does not set."""

import asyncio

state = {"ready": False}


async def until_ready(name):
    while not state["ready"]:
        await asyncio.sleep(1)
    return name


async def main():
    print(await asyncio.gather(until_ready("server"), until_ready("client")))


asyncio.run(main())
