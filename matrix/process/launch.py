"""Start the leader of a task's tree, and set up the process that watches over it."""

# The supervisor must not pay for importing pathlib.
# ruff: noqa: PTH100

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import time
from typing import TYPE_CHECKING

from matrix.process import kernel

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, linux/prctl.h
# Python ignores the first two, and exec keeps that; the others may be ignored since the tool's own start.
DEFAULTED = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM)


def adopt_orphans() -> None:
    """Make this process the parent of all its descendants whose own parent ends (Linux)."""
    ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)


def spawn(task: dict[str, Any]) -> tuple[int, float]:
    """Start a task's program in a session of its own; return its pid and when (seconds, monotonic).

    Its stdin is empty, its outputs append to files that exist; raise OSError where it cannot be started.
    """
    append = os.O_WRONLY | os.O_APPEND
    actions: list[tuple[Any, ...]] = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, os.path.abspath(task["stdout"]), append, 0),
    ]
    if task["stderr"] == task["stdout"]:
        actions.append((os.POSIX_SPAWN_DUP2, 1, 2))
    else:
        actions.append((os.POSIX_SPAWN_OPEN, 2, os.path.abspath(task["stderr"]), append, 0))
    # What it inherits is set here, for the moment of the start: no code runs between fork and exec.
    with _inherited():
        os.chdir(task["cwd"])
        started = time.monotonic()
        leader = os.posix_spawnp(
            task["argv"][0],
            task["argv"],
            task["env"],
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=DEFAULTED,
        )
    return leader, started


@contextlib.contextmanager
def _inherited() -> Iterator[None]:
    """Set, while the leader is started, what it shall inherit, and take it back for the supervisor itself."""
    limits = resource.getrlimit(resource.RLIMIT_CORE)
    score = "/proc/self/oom_score_adj"
    was = ""
    with contextlib.suppress(OSError, ValueError):
        # Where cores go to a program, the kernel ignores a limit of 0 but takes 1 as "none" (core(5)).
        piped = kernel.HAS_PROC and kernel.read("/proc/sys/kernel/core_pattern").startswith(b"|")
        resource.setrlimit(resource.RLIMIT_CORE, (min(int(piped), limits[1] if limits[1] >= 0 else 1), limits[1]))
    with contextlib.suppress(OSError):
        was = kernel.read(score).decode()
        _write(score, "1000")  # when the machine is out of memory, a cell goes before anything else
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            _write(score, was)
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, limits)


def hurry() -> None:
    """Be scheduled before anybody else, where that is allowed.

    A deadline fires on a crowded machine too, and against a fork bomb the faster one wins. What it
    takes is a few thousandths of a core; what it starts does not inherit this.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (OSError, AttributeError):
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, -20)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def wakeup() -> int:
    """Return a descriptor that can be read whenever a signal has come: nothing has to be polled for."""
    readable, writable = os.pipe()
    os.set_blocking(readable, False)
    os.set_blocking(writable, False)
    signal.set_wakeup_fd(writable, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    return readable
