"""What the tasks of an idle event loop await, as the process writes it and as a sentence says it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.process.running import until
from whichtorch.hangs.reasons import words_of_tasks
from whichtorch.hangs.stack_readers import parse_tasks
from whichtorch.inside.startup import FOLDER
from whichtorch.process import kernel
from whichtorch.process.evidence.capture import TASKS
from whichtorch.process.evidence.loop_watch import LOOP_SIGNAL

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and Linux's signals")
PROGRAMS = {
    "gather": (
        "async def one(ready):\n    await ready.wait()\nasync def main():\n    ready = asyncio.Event()\n"
        "    await asyncio.gather(one(ready), one(ready))\n",
        "`main` awaits `asyncio.gather(one(ready), one(ready))` (script.py:6) for `one` and `one`, "
        "`one` awaits `ready.wait()` (script.py:3), `one` awaits `ready.wait()` (script.py:3)",
    ),
    "lock kept over a queue": (
        "async def fill(lock, queue):\n    async with lock:\n        await queue.put(1)\n"
        "async def main():\n    queue, lock = asyncio.Queue(1), asyncio.Lock()\n    queue.put_nowait(0)\n"
        "    filling = asyncio.create_task(fill(lock, queue), name='filling')\n    await asyncio.sleep(0)\n"
        "    async with lock:\n        await queue.get()\n",
        "`main` awaits `lock` (script.py:10), `filling` awaits `queue.put(1)` (script.py:4) in `async with lock`",
    ),
    "wait": (
        "async def never():\n    await asyncio.get_running_loop().create_future()\nasync def main():\n"
        "    await asyncio.wait([asyncio.ensure_future(never())])\n",
        "`main` awaits `asyncio.wait([asyncio.ensure_future(never())])` (script.py:5) for `never`, "
        "`never` awaits `asyncio.get_running_loop().create_future()` (script.py:3)",
    ),
    "as completed": (
        "async def never():\n    await asyncio.get_running_loop().create_future()\nasync def main():\n"
        "    for first in asyncio.as_completed([never(), never()]):\n        await first\n",
        "`main` awaits `first` (script.py:6) for `never` and `never`, "
        "`never` awaits `asyncio.get_running_loop().create_future()` (script.py:3), "
        "`never` awaits `asyncio.get_running_loop().create_future()` (script.py:3)",
    ),
    "shield with a limit": (
        "async def never():\n    await asyncio.get_running_loop().create_future()\nasync def main():\n"
        "    await asyncio.wait_for(asyncio.shield(never()), 900)\n",
        "`main` awaits `asyncio.wait_for(asyncio.shield(never()), 900)` (script.py:5) for `never`, "
        "`never` awaits `asyncio.get_running_loop().create_future()` (script.py:3)",
    ),
    "no task": ("", ""),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_task_is_told_with_what_it_awaits(tmp_path: Path, name: str) -> None:
    """A process that polls writes its tasks when it is asked, goes on, and the sentence has each with its line."""
    source, words = PROGRAMS[name]
    script = tmp_path / f"{name}.py"  # sources are cached by their paths
    end = "asyncio.run(main())" if source else "import select\nselect.select([], [], [])"
    script.write_text(f"import asyncio\n{source}{end}\n")
    environ = {**os.environ, "PYTHONPATH": str(FOLDER), "WHICHTORCH_STACKS": str(tmp_path)}
    with subprocess.Popen([sys.executable, script], env=environ) as program:
        try:
            where = f"/proc/{program.pid}/wchan"  # the function of the kernel in which its main thread sleeps
            assert until(lambda: any(word in kernel.read(where) for word in (b"poll", b"select")))
            file = tmp_path / TASKS.file.format(pid=program.pid)
            file.touch()
            kernel.send(program.pid, LOOP_SIGNAL)
            assert until(lambda: file.stat().st_size)
            assert program.poll() is None
        finally:
            program.kill()
    processes = parse_tasks(file.read_text(), program.pid)
    assert "".join(map(words_of_tasks, processes)).replace(script.name, "script.py") == words
