"""One collector at work on one process, and what makes two processes alike in what it has written."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.matrix.process.evidence.capture import Collector

QUIET = {"DEBUGINFOD_URLS": "", "NO_COLOR": "1", "PYTHONPATH": ""}  # no downloads of symbols, no sitecustomize


class StackDump:
    """One collector at work on one process."""

    def __init__(self, collector: Collector, program: str, pid: int, folder: Path) -> None:
        self.collector = collector
        self.path = folder / collector.file.format(pid=pid)
        self._part = self.path.with_name(self.path.name + ".part")
        self.errors = os.memfd_create(collector.name)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(self._part), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666),
            (os.POSIX_SPAWN_DUP2, self.errors, 2),
        ]
        argv = [program, *(argument.format(pid=pid) for argument in collector.arguments)]
        self.pid = os.posix_spawn(program, argv, os.environ | QUIET, file_actions=actions, setsid=True)
        self.end = time.monotonic() + collector.patience

    def finish(self, status: int) -> str:
        """Keep what was written where it is of use; return what went wrong, "" for nothing."""
        size = self._part.stat().st_size
        text = os.pread(self.errors, 1 << 14, 0).decode(errors="replace").strip()
        os.close(self.errors)
        if size and (status == 0 or self.collector.is_fallback):
            self._part.replace(self.path)
        if size and status == 0:
            return ""
        return text or f"ended with status {os.waitstatus_to_exitcode(status)}"


def stack_shape(path: Path) -> tuple[object, ...] | None:
    """Return the functions and lines that the threads of a process are in, as py-spy has written them to a file.

    Two processes of the same shape are at the same places in the same program. None where the file tells nothing.
    """
    try:
        rows = json.loads(path.read_bytes())
        stacks = [
            tuple((frame["filename"], frame["name"], frame["line"]) for frame in thread["frames"]) for thread in rows
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return tuple(sorted(stacks, key=repr)) or None
