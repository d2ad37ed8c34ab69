"""A coroutine holds a lock of threads while it awaits a thread that wants the same lock."""

import asyncio
import threading


class Model:
    def __init__(self):
        self.lock = threading.Lock()

    def load(self):
        with self.lock:
            return 42

    async def infer(self):
        with self.lock:
            return await asyncio.to_thread(self.load)


print(asyncio.run(Model().infer()))
