async def go(n, *items, key=None, **more):
    async with n as m:
        await m
    return [i async for i in items]
