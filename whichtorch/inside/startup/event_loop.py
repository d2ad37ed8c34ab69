"""Write what the tasks of asyncio await, when the supervisor asks by a signal: an idle loop shows none of their frames.

Runs in the environments under test, under any Python that has torch wheels, with the standard library only, between two
instructions of the script. It calls no code of the script's.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from types import CellType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MOST = 64  # tasks that are written
DEPTH = 64  # coroutines that await each other
_FRAME_NAMES = ("cr_frame", "gi_frame", "ag_frame")  # of a coroutine, a generator, an asynchronous one
_AWAITED_NAMES = ("cr_await", "gi_yieldfrom", "ag_await")
_PLAIN = (str, int, bool, float, type(None))  # of values that are one object wherever they stand


def write_tasks(path: str) -> None:
    """Write the tasks of the main thread's loop that have not ended."""
    events, tasks_module = sys.modules.get("asyncio.events"), sys.modules.get("asyncio.tasks")
    loop = events._get_running_loop() if events else None
    tasks = tasks_module.all_tasks(loop) if loop and tasks_module else ()
    first = sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))[:MOST]  # Task-2 before Task-10
    library = os.path.dirname(tasks_module.__file__ or "") if tasks_module else ""  # noqa: PTH120
    with open(path + ".part", "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"count": len(tasks), "tasks": [_row(task, tasks, library) for task in first]}, file)
    os.replace(path + ".part", path)  # noqa: PTH105


def _row(task: Any, tasks: Any, library: str) -> dict[str, Any]:
    """Return the name of a task, its frames, innermost first, and the names of the tasks that it awaits.

    What asyncio's own functions wait for is in their variables, and in what a task calls when it ends: the future of
    `gather` and `shield`, the waiter of `wait`, the queue of `as_completed`, the group itself.
    """
    waited = [getattr(task, "_fut_waiter", None)]
    frames: list[dict[str, Any]] = []
    coroutine = task.get_coro()
    while coroutine is not None and len(frames) < DEPTH:
        frame = _first(coroutine, _FRAME_NAMES)
        if frame is not None:
            code = frame.f_code
            frames.append({"file": code.co_filename, "function": code.co_name, "line": frame.f_lineno})
            if os.path.dirname(code.co_filename) == library:  # noqa: PTH120
                waited += [each for each in frame.f_locals.values() if type(each) not in _PLAIN]
        coroutine = _first(coroutine, _AWAITED_NAMES)
    marks = {id(each) for each in waited} - {id(None), id(task.get_loop())}
    others = {each.get_name() for each in tasks if each is not task and any(id(held) in marks for held in _held(each))}
    return {"name": task.get_name(), "frames": frames[::-1], "awaits": sorted(others)}


def _held(task: Any) -> Any:
    """Yield a task, and what the functions hold that it calls when it ends: variables, objects, arguments."""
    yield task
    for callback, _ in getattr(task, "_callbacks", None) or ():
        waiting = gc.get_referents(callback)  # reading an attribute might call the script's code
        while waiting:
            each = waiting.pop()
            yield each
            waiting += gc.get_referents(each) if type(each) in (tuple, CellType) else []


def _first(thing: Any, names: tuple[str, ...]) -> Any:
    return next((getattr(thing, name) for name in names if hasattr(thing, name)), None)
