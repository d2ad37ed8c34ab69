"""Probes of a search that run where they are started, through the pipeline, with runs that are made up."""

from __future__ import annotations

from collections.abc import Callable

from matrix.bisect.prober import Probed
from matrix.bisect.question import Workbench
from matrix.model import Request
from matrix.plan.planning import PlannedCell
from matrix.process.supervision import Ending, Task
from matrix.records import store
from matrix.records.store import Records
from matrix.run.pipeline import MatrixRun
from matrix.run.site import LocalSite
from tests.fakes import FakeCache, FakeExecutor

FAILED = Ending(stopped_by="exit", exit_code=1, signal=None, seconds=1.0)


class InlineProber:
    """`behave` says how each run of what was asked for ends."""

    def __init__(self, cache: FakeCache, run_store: store.RunStore, behave: Callable[[Request], Ending]) -> None:
        self.cache, self.store, self.records = cache, run_store, Records()
        self.behave = behave
        self._ended: dict[int, Probed] = {}

    @property
    def run_id(self) -> str:
        return self.store.run.id

    @property
    def positions(self) -> frozenset[int]:
        return frozenset(self._ended)

    def start(self, position: int, planned: PlannedCell) -> None:
        def run(_task: Task) -> Ending:
            return self.behave(planned.request)

        site = LocalSite(self.cache, FakeExecutor(run), self.records, self.store, lambda _event: None)
        made = MatrixRun([planned], site, self.store, lambda _event: None)
        made.run()
        self._ended[position] = Probed(position=position, environment=made.environments[0], cell=made.cells[0])

    def wait(self, _seconds: float | None = None) -> list[Probed]:
        ended, self._ended = list(self._ended.values()), {}
        return ended

    def close(self) -> None:
        pass


def bench_of(prober: InlineProber) -> Workbench:
    """Return a workbench with such a prober."""
    return Workbench(
        cache=prober.cache,
        records=prober.records,
        prober=prober,  # type: ignore[arg-type]
        emit=lambda _event: None,
        installs=lambda: len(prober.cache.acquired),
    )
