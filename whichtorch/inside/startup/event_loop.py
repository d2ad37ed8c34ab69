"""Write what the tasks of asyncio await, when the supervisor asks by a signal: an idle loop shows none of their frames.

Runs in the environments under test, under any Python that has torch wheels, with the standard library only, between two
instructions of the script. It changes nothing.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 64  # tasks that are written
DEPTH = 64  # coroutines that await each other
_FRAMES = ("cr_frame", "gi_frame", "ag_frame")  # of a coroutine, a generator, an asynchronous one
_INNER = ("cr_await", "gi_yieldfrom", "ag_await")


def write_tasks(path: str) -> None:
    """Write the tasks of this process that have not ended: of the main thread's loop, or else of all others."""
    events, asyncio = sys.modules.get("asyncio.events"), sys.modules.get("asyncio.tasks")
    loop = events._get_running_loop() if events else None
    tasks = getattr(asyncio, "_scheduled_tasks", getattr(asyncio, "_all_tasks", ()))  # the first from Python 3.12 on
    waiting = [task for task in (asyncio.all_tasks(loop) if loop and asyncio else list(tasks)) if not task.done()]
    rows = [_row(task, type(task)) for task in sorted(waiting, key=lambda task: str(task.get_name()))[:MOST]]
    with open(path + ".part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump(rows, file)
    os.replace(path + ".part", path)  # noqa: PTH105


def _row(task: Any, kind: Any) -> dict[str, Any]:
    """Return the name of a task, its frames, innermost first, and the names of the tasks that it awaits."""
    waiter = getattr(task, "_fut_waiter", None)
    awaited = [waiter, *getattr(waiter, "_children", ())]  # the children of gather
    frames: list[dict[str, Any]] = []
    coroutine = task.get_coro()
    while coroutine is not None and len(frames) < DEPTH:
        frame = _first(coroutine, _FRAMES)
        if frame is not None:
            code = frame.f_code
            frames.append({"file": code.co_filename, "function": code.co_name, "line": frame.f_lineno})
            if "/asyncio/" in code.co_filename:  # wait and TaskGroup keep tasks in variables
                values = [*frame.f_locals.values(), getattr(frame.f_locals.get("self"), "_tasks", None)]
                awaited += [each for value in values for each in (value if type(value) in {set, list} else [value])]
        coroutine = _first(coroutine, _INNER)
    others = {each.get_name() for each in awaited if isinstance(each, kind) and each is not task and not each.done()}
    return {"name": task.get_name(), "frames": frames[::-1], "awaits": sorted(others)}


def _first(thing: Any, names: tuple[str, ...]) -> Any:
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)
