"""Environments and an executor that need no machine."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from whichtorch.matrix.lab import Lab
from whichtorch.matrix.site import LocalSite
from whichtorch.model import Environment, Outcome, Request
from whichtorch.process.supervision import Ending
from whichtorch.records.line_index import Records

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from whichtorch.environments.provider import Environments, Stage
    from whichtorch.model.events import Emit
    from whichtorch.process.executor import Executor
    from whichtorch.process.supervision import Supervised, Task
    from whichtorch.records.store import RunStore

PASSED = Ending(stopped_by="exit", exit_code=0, signal=None, seconds=2.0)
MOVING = Ending(stopped_by="timeout", exit_code=None, signal=None, seconds=60.0, cpu_seconds=60, moving=True)


def moving(task: Task) -> Ending:
    """Return how a task ends that is still moving when its time is over."""
    return replace(MOVING, seconds=task.timeout)


def shows_nothing(_total: int | None) -> nullcontext[Emit]:
    """Show no progress."""
    return nullcontext(lambda _event: None)


def lab_of(environments: Environments, store: RunStore, executor: Executor, jobs: int = 2) -> Lab:
    """Return a lab of this machine that begins with no records, and shows nothing."""
    return Lab(LocalSite(environments, Records(), store, lambda _event: None, executor, jobs=jobs), shows_nothing)


@dataclass
class FakeCache:
    """Environments that are there at once; those named in `missing` cannot be installed."""

    home: Path
    missing: frozenset[str] = frozenset()
    knows: bool = True
    unreachable: str | None = None  # the index that is in the way
    acquired: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    installed: set[str] = field(default_factory=set)  # versions

    def environment(self, request: Request) -> Environment:
        outcome = Outcome.UNBUILDABLE if request.torch in self.missing else None
        return Environment(
            id=f"id-{request.torch}-{request.config.name}",
            label=request.label,
            torch=request.torch,
            python="3.11.7",
            build="pypi",
            config=request.config.name,
            interpreter=self.home / "python",
            outcome=outcome,
            reason="no wheel" if outcome else None,
        )

    def known(self, request: Request) -> Environment | None:
        return self.environment(request) if self.knows and request.torch not in self.missing else None

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        self.acquired.append(request.label)
        environment = self.environment(request)
        if environment.is_usable:
            self.installed.add(request.torch)
        return environment

    def is_installed(self, request: Request) -> bool:
        return request.torch in self.installed

    def typical_install(self) -> float:
        return 25.0

    def unreachable_index(self, request: Request) -> str | None:
        return self.unreachable

    def release(self, request: Request) -> None:
        self.released.append(request.label)


class FakeExecutor:
    """Answers with what `behave` says of a task's script and environment."""

    def __init__(self, behave: Callable[[Task], Ending | None]) -> None:
        self.behave = behave
        self.tasks: list[Task] = []
        self._lock = threading.Lock()

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        with self._lock:
            self.tasks.append(task)
        return self.behave(task)

    @property
    def running(self) -> tuple[Supervised, ...]:
        return ()

    def interrupt(self) -> None:
        pass
