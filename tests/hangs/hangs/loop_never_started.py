"""A coroutine is given to an event loop that nobody runs."""

import asyncio

loop = asyncio.new_event_loop()


def call(coroutine):
    future = asyncio.run_coroutine_threadsafe(coroutine, loop)
    return future.result()


async def answer():
    return 42


print(call(answer()))
