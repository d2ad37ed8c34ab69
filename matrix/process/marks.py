"""Mark attempts in their environment, and find who is left over from a tool that was killed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import time
from typing import TYPE_CHECKING

from matrix.process import kernel

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

VARIABLE = "WHICHTORCH_ATTEMPT"
SWEEP_PATIENCE = 5.0  # seconds: after that, what is left cannot be killed (uninterruptible sleep)


def state_id(state: Path) -> str:
    """Return a short name of a state folder: the same for every tool that uses it, on this machine.

    The pid namespace is part of it: process ids of another container mean nothing here.
    """
    with contextlib.suppress(OSError):
        state = state.resolve()
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - not a path
    except OSError:
        namespace = ""
    return hashlib.sha256(f"{state}\0{namespace}".encode(errors="replace")).hexdigest()[:12]


def mark_for(state: Path, attempt: str) -> str:
    """Return the mark of one attempt of this very process: "<state id>:<tool pid>:<tool start>:<attempt>"."""
    pid = os.getpid()
    return f"{state_id(state)}:{pid}:{_start_time(pid)}:{attempt}"


def owner_is_dead(mark: str) -> bool:
    """Return whether the tool that made `mark` has gone; False for what is not a mark."""
    parts = mark.split(":", 3)
    if len(parts) != 4 or not parts[1].isdigit() or not parts[2].isdigit():
        return False
    return _start_time(int(parts[1])) != int(parts[2])


def _start_time(pid: int) -> int:
    """Return when a process started (ticks since boot), -1 where there is none or it is a zombie."""
    found = kernel.process(pid) if kernel.HAS_PROC else None
    if found is None:
        return 0 if not kernel.HAS_PROC and _exists(pid) else -1
    return found.started if found.is_alive else -1


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def sweep(is_stale: Callable[[str], bool], *, sessions: frozenset[int] = frozenset()) -> list[str]:
    """SIGKILL all processes whose mark `is_stale`, their descendants, and `sessions`; return who they were.

    Never this process or one it descends from. Where there is no /proc, nobody can be found.
    """
    if not kernel.HAS_PROC:
        return []
    killed: dict[int, str] = {}
    patience = time.monotonic() + SWEEP_PATIENCE
    while time.monotonic() < patience:
        stale = _stale(is_stale, sessions)
        if not stale:
            break
        fresh = [pid for pid in stale if pid not in killed]
        for pid in fresh:
            kernel.send(pid, signal.SIGSTOP)
            killed[pid] = kernel.describe(pid)
        if fresh:
            continue  # until nobody new turns up: who is frozen cannot fork
        for pid in stale:
            kernel.send(pid, signal.SIGKILL)
        time.sleep(0.01)  # nobody tells who is not the parent
    return list(killed.values())


def _stale(is_stale: Callable[[str], bool], sessions: frozenset[int]) -> set[int]:
    """Return the living processes that carry a stale mark, or descend from one that does."""
    everyone = {pid: found for pid in kernel.pids() if (found := kernel.process(pid)) and found.is_alive}
    kept = {os.getpid()}
    above = os.getppid()
    while above in everyone:
        kept.add(above)
        above = everyone[above].parent
    stale = set()
    for pid in everyone.keys() - kept:
        mark = read_mark(pid)
        if (mark is not None and is_stale(mark)) or (sessions and _session(pid) in sessions):
            stale.add(pid)
    growing = True
    while growing:
        below = {pid for pid, found in everyone.items() if found.parent in stale} - stale - kept
        growing = bool(below)
        stale |= below
    return stale


def read_mark(pid: int) -> str | None:
    """Return the mark that a process was started with, None where it has none or is not ours to read."""
    try:
        environment = kernel.read(f"/proc/{pid}/environ", 1 << 22)
    except OSError:
        return None
    prefix = VARIABLE.encode() + b"="
    for entry in environment.split(b"\0"):
        if entry.startswith(prefix):
            return os.fsdecode(entry[len(prefix) :])
    return None


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except OSError:
        return None
