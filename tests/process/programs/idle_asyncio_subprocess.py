import asyncio


async def m():
    p = await asyncio.create_subprocess_exec("sleep", "8")
    await p.wait()


asyncio.run(m())
