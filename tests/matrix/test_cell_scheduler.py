"""The scheduler of cells on this machine: work that comes and goes while other work runs."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.fakes import PASSED, FakeCache, FakeExecutor
from tests.matrix.test_lab import requests, scenario
from tests.patience import PATIENCE
from tests.process.running import until
from whichtorch.environments.provider import Stage
from whichtorch.matrix import planning
from whichtorch.matrix.cell_scheduler import CellScheduler
from whichtorch.matrix.lab import MatrixRun
from whichtorch.matrix.site import INSTALLS_AT_ONCE, LocalSite
from whichtorch.model import Environment, Outcome, Request
from whichtorch.process.supervision import Ending, Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import new_run


class PatientExecutor(FakeExecutor):
    """Runs a task until it is cancelled, or until the test lets all go on."""

    def __init__(self) -> None:
        super().__init__(lambda _task: PASSED)
        self.go_on = threading.Event()

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        assert cancelled is not None
        super().run(task)
        while not (self.go_on.wait(0.005) or cancelled.is_set()):
            pass
        return None if cancelled.is_set() else PASSED


@dataclass
class SlowCache(FakeCache):
    """Environments of which each install takes a moment; a cancelled one goes on to its end."""

    at_once: int = 0
    most: int = 0
    is_open: threading.Event = field(default_factory=threading.Event)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        with self.guard:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        self.is_open.wait(PATIENCE)
        time.sleep(0.02)
        with self.guard:
            self.at_once -= 1
            return super().acquire(request, cancelled, stage)


@contextmanager
def scheduler(home: Path, cache: FakeCache, executor: FakeExecutor, jobs: int = 2) -> Iterator[CellScheduler]:
    """Give a scheduler of this machine with an open run."""
    with new_run(home, ()) as store:
        yield CellScheduler(LocalSite(cache, Records(), store, lambda _event: None, executor, jobs=jobs))


def cells(tmp_path: Path, *versions: str) -> Sequence[planning.PlannedCell]:
    return planning.plan(requests(*versions), [scenario(tmp_path, "one")], planning.RunOptions())


def test_work_is_added_and_cancelled_while_other_work_runs(tmp_path: Path) -> None:
    """What is cancelled ends without a cell and alone, its environment is let go, and the rest goes on."""
    cache, executor = FakeCache(tmp_path, knows=False), PatientExecutor()
    with scheduler(tmp_path, cache, executor) as cell_scheduler:
        first, second = (MatrixRun(cells(tmp_path, version), cell_scheduler) for version in ("2.0.0", "2.1.0"))
        (first_end,) = first.begin()
        assert until(lambda: len(executor.tasks) == 1)
        (second_end,) = second.begin()
        assert until(lambda: len(executor.tasks) == 2)
        first.cancel()
        assert first_end.result(PATIENCE) is None
        assert (first.cells, cache.released, second_end.done()) == ((), ["torch-2.0.0-pypi"], False)
        executor.go_on.set()
        assert second_end.result(PATIENCE) is None
    assert [cell.outcome for cell in second.cells] == [Outcome.PASS]
    assert cache.released == ["torch-2.0.0-pypi", "torch-2.1.0-pypi"]


def test_only_so_many_environments_are_made_at_once(tmp_path: Path) -> None:
    """However many jobs there are."""
    cache = SlowCache(tmp_path, knows=False)
    cache.is_open.set()
    planned = cells(tmp_path, *(f"2.{minor}.0" for minor in range(6)))
    with scheduler(tmp_path, cache, FakeExecutor(lambda _task: PASSED), jobs=6) as cell_scheduler:
        run = MatrixRun(planned, cell_scheduler)
        run.run()
    assert len(run.cells) == 6
    assert cache.most == INSTALLS_AT_ONCE


def test_what_was_made_for_cancelled_work_is_let_go(tmp_path: Path) -> None:
    """An environment that becomes ready when nobody wants it any more may be evicted."""
    cache, executor = SlowCache(tmp_path, knows=False), FakeExecutor(lambda _task: PASSED)
    with scheduler(tmp_path, cache, executor) as cell_scheduler:
        run = MatrixRun(cells(tmp_path, "2.0.0"), cell_scheduler)
        (end,) = run.begin()
        assert until(lambda: cache.at_once == 1)
        run.cancel()
        cache.is_open.set()
        assert end.result(PATIENCE) is None
    assert (executor.tasks, cache.released) == ([], cache.acquired)


def test_nothing_is_run_after_an_error(tmp_path: Path) -> None:
    """Whoever waits for other work has the same error."""

    def explode(_task: Task) -> Ending:
        raise RuntimeError("a defect")

    with scheduler(tmp_path, FakeCache(tmp_path, knows=False), FakeExecutor(explode)) as cell_scheduler:
        for version in ("2.0.0", "2.1.0"):
            (end,) = MatrixRun(cells(tmp_path, version), cell_scheduler).begin()
            with pytest.raises(RuntimeError, match="a defect"):
                end.result(PATIENCE)
