"""What a killed tool leaves running or lying about, marked so that the next run of the tool finds it.

The mark of a process is a variable in its environment. A process that was forked from a fork server carries
the server's mark, because the kernel shows the environment that a program was started with. A folder for temporary
files has the process that made it in its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import signal
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.process import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MARK_VARIABLE = "WHICHTORCH_ATTEMPT"
SWEEP_PATIENCE = 5.0  # seconds: after that, what is left cannot be killed (uninterruptible sleep)


def state_id(state: Path) -> str:
    """Return a short name of a state folder, the same for every tool on this machine that uses it.

    The pid namespace is part of the name: process ids of another container mean nothing here.
    """
    with contextlib.suppress(OSError):
        state = state.resolve()
    namespace = kernel.link("/proc/self/ns/pid")
    return hashlib.sha256(f"{state}\0{namespace}".encode(errors="replace")).hexdigest()[:12]


def mark_for(state: Path, attempt: str) -> str:
    """Return the mark of one attempt of this very process: "<state id>:<tool pid>:<tool start>:<attempt>"."""
    return f"{state_id(state)}:{owner_mark()}:{attempt}"


def owner_mark() -> str:
    """Return what names this very process, now and later: "<pid>:<start>"."""
    return f"{os.getpid()}:{_start_time(os.getpid())}"


def owner_is_dead(mark: str) -> bool:
    """Return whether the tool that made `mark` has gone; False for a text that is not a mark."""
    owner = re.match(r"[^:]*:(\d+):(\d+):", mark)
    return owner is not None and _start_time(int(owner[1])) != int(owner[2])


def _start_time(pid: int) -> int:
    """Return when a process started: ticks since boot, -1 if it is a zombie or has gone."""
    process = kernel.process(pid)
    return process.started if process and process.is_alive else -1


def sweep_left_behind(state: Path) -> None:
    """SIGKILL what killed tools with the same state folder have left running."""
    ours = state_id(state)
    sweep(lambda mark: mark.startswith(ours) and owner_is_dead(mark))


def sweep(is_stale: Callable[[str], bool]) -> list[str]:
    """SIGKILL all processes whose mark `is_stale`, and their descendants; return their descriptions.

    Spare this process and its ancestors. Without /proc, no process is found.
    """
    if not kernel.HAS_PROC:
        return []
    killed: dict[int, str] = {}
    end = time.monotonic() + SWEEP_PATIENCE
    while stale := _stale(is_stale):
        fresh = stale - killed.keys()
        for pid in fresh:
            kernel.send(pid, signal.SIGSTOP)
            killed[pid] = kernel.describe(pid)
        is_late = time.monotonic() > end
        if fresh and not is_late:
            continue  # until no new process turns up: a frozen process cannot fork
        for pid in stale:
            kernel.send(pid, signal.SIGKILL)
        if is_late:
            break
        time.sleep(0.01)  # only a parent is notified of the end
    return list(killed.values())


def _stale(is_stale: Callable[[str], bool]) -> set[int]:
    """Return the living processes that carry a stale mark, and their descendants."""
    processes = {pid: process for pid in kernel.pids() if (process := kernel.process(pid)) and process.is_alive}
    spared = {os.getpid()}
    ancestor = os.getppid()
    while ancestor in processes:
        spared.add(ancestor)
        ancestor = processes[ancestor].parent
    marks = {pid: _read_mark(pid) for pid in processes.keys() - spared}
    stale = fresh = {pid for pid, mark in marks.items() if mark is not None and is_stale(mark)}
    while fresh:
        fresh = {pid for pid, process in processes.items() if process.parent in stale} - stale - spared
        stale = stale | fresh
    return stale


def _read_mark(pid: int) -> str | None:
    """Return the mark that a process was started with, None where it has none or may not be read."""
    try:
        environment = kernel.read(f"/proc/{pid}/environ", 1 << 22)
    except OSError:
        return None
    _, name, rest = (b"\0" + environment).partition(b"\0" + MARK_VARIABLE.encode() + b"=")
    return os.fsdecode(rest.partition(b"\0")[0]) if name else None


def new_temporary_folder(below: Path | None = None) -> Path:
    """Make a folder that the caller removes; it is in the folder for temporary files unless another one is given."""
    return Path(tempfile.mkdtemp(prefix=f"{_prefix()}{owner_mark().replace(':', '-')}-", dir=below))


@contextmanager
def temporary_folder(below: Path | None = None) -> Iterator[Path]:
    """Make a folder as `new_temporary_folder` does, and remove it at the end of the block."""
    folder = new_temporary_folder(below)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_behind(below: Path | None = None) -> None:
    """Remove the folders of tools that were killed."""
    for folder in (below or Path(tempfile.gettempdir())).glob(f"{_prefix()}*"):
        owner = re.match(r"(\d+)-(\d+)-", folder.name.removeprefix(_prefix()))
        if owner and owner_is_dead(f":{owner[1]}:{owner[2]}:"):
            shutil.rmtree(folder, ignore_errors=True)


def _prefix() -> str:
    """Return how the names begin; with the machine and the pid namespace, because a pid means nothing elsewhere."""
    place = f"{platform.node()} {kernel.link('/proc/self/ns/pid')}"
    return f"whichtorch-{hashlib.sha256(place.encode()).hexdigest()[:12]}-"
