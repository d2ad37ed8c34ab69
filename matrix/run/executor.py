"""Run attempts on this machine: a bounded number at once, memory permitting."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import psutil

from matrix.process.supervision import Supervised, start

if TYPE_CHECKING:
    from matrix.process.supervision import Ending, Task

MEMORY_PER_JOB_MB = 3000  # what a compiling torch process and its workers take, measured up to 2.6 GB
HEADROOM_MB = 1000  # left to the machine: no attempt starts below it while another runs
MEMORY_RECHECK = 0.5  # seconds between looks at the memory while an attempt waits for it


def default_jobs() -> int:
    """Return how many attempts fit this machine at once: its cores, memory permitting."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, int(_available_mb() / MEMORY_PER_JOB_MB)))


def _available_mb() -> float:
    return psutil.virtual_memory().available / 2**20


class LocalExecutor:
    """Starts tasks, waits for them, and stops them all at once when told to."""

    def __init__(self) -> None:
        self._running: set[Supervised] = set()
        self._changed = threading.Condition()
        self._interrupted = False

    def run(self, task: Task) -> Ending | None:
        """Run a task to its end; None if it was interrupted before it could start."""
        with self._changed:
            while self._running and not self._interrupted and _available_mb() < HEADROOM_MB:
                self._changed.wait(MEMORY_RECHECK)
            if self._interrupted:
                return None
            supervised = start(task)
            self._running.add(supervised)
        try:
            return supervised.wait()
        finally:
            with self._changed:
                self._running.discard(supervised)
                self._changed.notify_all()

    @property
    def running(self) -> tuple[Supervised, ...]:
        """What runs now."""
        with self._changed:
            return tuple(self._running)

    def interrupt(self) -> None:
        """Stop all that runs and start nothing more."""
        with self._changed:
            self._interrupted = True
            running = tuple(self._running)
            self._changed.notify_all()
        for supervised in running:
            supervised.interrupt()
