"""Say where running cells are, without disturbing them: for whoever asks the tool with a signal."""

from __future__ import annotations

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from matrix.process import kernel
from matrix.process.supervision import find_py_spy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.process.supervision import Supervised

PATIENCE = 5.0  # seconds for one py-spy: somebody is waiting at a terminal


def running_lines(running: Sequence[Supervised]) -> list[str]:
    """Return for each running task its name, its elapsed time and the line of Python that it is in."""
    if not running:
        return []
    with ThreadPoolExecutor(len(running)) as pool:
        return list(pool.map(_line, running))


def _line(supervised: Supervised) -> str:
    task = supervised.task
    since = f"{task.name or task.argv[-1]}  {supervised.elapsed:.0f} of {task.timeout:.0f} s"
    leader = leader_of(supervised.pid)
    return f"{since}  {current_line(leader) if leader else 'starting'}"


def leader_of(supervisor: int) -> int | None:
    """Return the process that a supervisor started first; None where it has none yet."""
    members = [member for member in kernel.Tree(supervisor).look(full=True) if member.parent == supervisor]
    return min(members, key=lambda member: member.started).pid if members else None


def current_line(pid: int, py_spy: str | None = None) -> str:
    """Return `function (file:line)` of the main thread of a process, read without stopping it; or why not."""
    py_spy = py_spy or find_py_spy()
    if py_spy is None:
        return "no py-spy to tell where"
    command = [py_spy, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        ended = subprocess.run(command, capture_output=True, timeout=PATIENCE, check=False)
        threads = json.loads(ended.stdout)
        return _innermost(threads, pid)
    except subprocess.TimeoutExpired:
        return f"process {pid}: py-spy took too long"
    except (OSError, ValueError, LookupError, TypeError):
        return f"process {pid}: no Python to be read"


def _innermost(threads: list[dict[str, Any]], pid: int) -> str:
    main = [thread for thread in threads if thread.get("os_thread_id") == pid] or threads
    frame = main[0]["frames"][0]
    return f"{frame['name']} ({PurePath(frame['filename']).name}:{frame['line']})"
