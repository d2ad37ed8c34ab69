"""Run tasks on this machine: a bounded number at once, memory permitting."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Protocol

import psutil

from whichtorch.matrix.process.supervision import Ending, Supervised, Task, start

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY_PER_JOB_MB = 3000  # what a compiling torch process and its workers take, measured up to 2.6 GB
HEADROOM_MB = 1000  # left to the machine: no task starts below it while another runs
MEMORY_RECHECK = 0.5  # seconds between looks at the memory while a task waits for it


class Executor(Protocol):
    """Something that runs tasks. Its methods may be called from several threads."""

    @property
    def running(self) -> tuple[Supervised, ...]:
        """The tasks that run now."""

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        """Run a task to its end, or until `cancelled` is set; None if it was interrupted before it could start."""

    def interrupt(self) -> None:
        """Stop all tasks that run, and start no other."""


def usable_cores() -> int:
    """Return how many cores of this machine programs may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def load_slowdown() -> float:
    """Estimate how much longer a run takes than on an idle machine: the one-minute load per core, at least 1."""
    return max(1.0, os.getloadavg()[0] / usable_cores())


def default_jobs() -> int:
    """Return how many attempts fit this machine at once: its cores, memory permitting."""
    return max(1, min(usable_cores(), int(_available_mb() / MEMORY_PER_JOB_MB)))


def _available_mb() -> float:
    return psutil.virtual_memory().available / 2**20


class LocalExecutor:
    """Runs tasks on this machine, each under its own supervisor."""

    def __init__(self) -> None:
        self._running: set[Supervised] = set()
        self._changed = threading.Condition()
        self._interrupted = False

    @property
    def running(self) -> tuple[Supervised, ...]:
        """The tasks that run now."""
        with self._changed:
            return tuple(self._running)

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        """Run a task to its end, or until `cancelled` is set; None if it was interrupted before it could start."""
        return self.attend(lambda: start(task), cancelled)

    def attend(self, begin: Callable[[], Supervised], cancelled: threading.Event | None = None) -> Ending | None:
        """Begin a task when memory permits, and wait for its end; see `run`."""
        with self._changed:
            while self._running and not self._is_over(cancelled) and _available_mb() < HEADROOM_MB:
                self._changed.wait(MEMORY_RECHECK)
            if self._is_over(cancelled):
                return None
            supervised = begin()
            self._running.add(supervised)
        try:
            return supervised.wait(cancelled)
        finally:
            with self._changed:
                self._running.discard(supervised)
                self._changed.notify_all()

    def _is_over(self, cancelled: threading.Event | None) -> bool:
        return self._interrupted or (cancelled is not None and cancelled.is_set())

    def interrupt(self) -> None:
        """Stop all tasks that run, and start no other."""
        with self._changed:
            self._interrupted = True
            running = tuple(self._running)
            self._changed.notify_all()
        for supervised in running:
            supervised.interrupt()
