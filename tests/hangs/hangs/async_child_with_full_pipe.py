"""A coroutine awaits the end of a program whose output nobody reads."""

import asyncio
import sys


async def main():
    code = "for number in range(100000): print(number)"
    converter = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    print(await converter.wait())


asyncio.run(main())
