import asyncio

asyncio.run(asyncio.sleep(8))
