"""The processes that a worker forks trials from, kept from one trial of a client's run to the next."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from whichtorch.process.executor import ForkingExecutor
from whichtorch.process.temporary_folders import temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from whichtorch.process.executor import Executor

IDLE = 60.0  # seconds without a trial after which the kept processes end, because they hold memory


class TrialForks:
    """Executors that fork, with folders for the caches of compilers, kept as long as trials come."""

    def __init__(self, idle: float = IDLE) -> None:
        self._idle = idle
        self._guard = threading.Lock()  # of everything below
        self._users = 0
        self._kept: dict[str, tuple[Executor, Path, ExitStack]] = {}  # by client's run
        self._timer: threading.Timer | None = None

    @contextmanager
    def lent(self, run: str) -> Iterator[tuple[Executor, Path]]:
        """Lend an executor and a folder for caches to a trial of a client's run."""
        with self._guard:
            self._users += 1
            if run not in self._kept:
                held = ExitStack()
                executor = held.enter_context(ForkingExecutor())
                caches = held.enter_context(temporary_folder())
                self._kept[run] = executor, caches, held
            lent, folder, _ = self._kept[run]
        try:
            yield lent, folder
        finally:
            with self._guard:
                self._users -= 1
                if self._timer is not None:
                    self._timer.cancel()
                self._timer = threading.Timer(self._idle, self.close)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """End the kept executors, unless a trial uses one."""
        with self._guard:
            if self._users:
                return
            kept = list(self._kept.values())
            self._kept.clear()
        for *_, held in kept:
            held.close()
