"""A coroutine reads lines of a program that waits for its input first."""

import asyncio
import sys
from asyncio.subprocess import PIPE


async def main():
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "print(input())", stdin=PIPE, stdout=PIPE)
    async for line in child.stdout:
        print(line)


asyncio.run(main())
