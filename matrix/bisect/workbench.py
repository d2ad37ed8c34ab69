"""The workbench of a search: it runs probes, several at once, each through the same pipeline as a cell of a matrix."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.events import AttemptEnded, Emit, EnvironmentStage, Event, Show
from matrix.model import Cell, Environment, Role
from matrix.process.executor import Executor, LocalExecutor
from matrix.records.known_records import Records
from matrix.records.store import RunStore, read_records
from matrix.run.pipeline import MatrixRun, opened_run
from matrix.run.signals import answering
from matrix.run.site import SIGNAL_CHECK, LocalSite, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from matrix.bisect.request import SearchRequest
    from matrix.environments.provider import Environments
    from matrix.plan.planning import PlannedCell
    from matrix.run.site import OtherMachines


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What came of a probe; no cell where it was cancelled."""

    position: int
    environment: Environment | None = None
    cell: Cell | None = None


@dataclass(slots=True, kw_only=True)
class _Running:
    run: MatrixRun
    site: Site
    thread: threading.Thread


class Workbench:
    """Where the probes of one command run; several searches may follow one another on it.

    Use it from one thread; close it at the end, whatever happened.
    """

    def __init__(
        self,
        cache: Environments,
        records: Records,
        store: RunStore,
        emit: Emit,
        make_executor: Callable[[], Executor] = LocalExecutor,
        elsewhere: OtherMachines | None = None,
    ) -> None:
        self.cache, self.records = cache, records
        self._store, self._tell = store, emit
        self._elsewhere = elsewhere
        self._make_executor = make_executor  # one for each probe, so that one can be stopped alone
        self._started = time.monotonic()
        self._changed = threading.Condition()  # guards what is below
        self._running: dict[int, _Running] = {}
        self._ended: list[Probed] = []
        self._failure: BaseException | None = None
        self.runs = 0  # attempts made so far, those that only observe left out
        self._installs = 0

    @property
    def installs(self) -> int:
        """How many installs and builds were begun."""
        return self._installs

    @property
    def seconds(self) -> float:
        """How long it has been open."""
        return time.monotonic() - self._started

    @property
    def run_id(self) -> str:
        """The run that the records go to."""
        return self._store.run.id

    @property
    def positions(self) -> frozenset[int]:
        """Where probes run now."""
        with self._changed:
            return frozenset(self._running)

    def running_lines(self) -> list[str]:
        """Return for each attempt that runs now how long it has run, and where it is."""
        with self._changed:
            sites = [probe.site for probe in self._running.values()]
        return [line for site in sites for line in site.running_lines()]

    def start(self, position: int, planned: PlannedCell) -> None:
        """Begin a probe; `wait` tells what came of it."""
        site: Site
        if self._elsewhere is None:
            site = LocalSite(self.cache, self._make_executor(), self.records, self._store, self.emit)
        else:
            site = self._elsewhere.make_site(self.records, self._store, self.emit)
        run = MatrixRun([planned], site)
        thread = threading.Thread(target=self._probe, args=(position, run), name=f"probe {position}", daemon=True)
        with self._changed:
            self._running[position] = _Running(run=run, site=site, thread=thread)
        thread.start()

    def cancel(self, position: int) -> None:
        """Have a probe end soon, whatever it is doing; its attempts that are done are kept."""
        with self._changed:
            running = self._running.get(position)
        if running is not None:
            running.run.cancel()

    def wait(self, seconds: float | None = None) -> list[Probed]:
        """Wait until a probe ends or `seconds` pass; return the probes that have ended.

        Raises the error of a probe that failed for another reason than its environment.
        """
        with self._changed:
            left = seconds
            while not self._ended and self._failure is None and (left is None or left > 0):
                self._changed.wait(SIGNAL_CHECK if left is None else min(left, SIGNAL_CHECK))
                left = None if left is None else left - SIGNAL_CHECK
            if self._failure is not None:
                raise self._failure
            ended, self._ended = self._ended, []
            return ended

    def close(self) -> None:
        """Cancel what runs and wait for its end."""
        with self._changed:
            running = list(self._running.values())
        for probe in running:
            probe.run.cancel()
        for probe in running:
            probe.thread.join()

    def emit(self, event: Event) -> None:
        """Pass an event on, and count the attempts and installs."""
        with self._changed:
            self.runs += isinstance(event, AttemptEnded) and event.attempt.role is Role.JUDGE
            self._installs += isinstance(event, EnvironmentStage) and event.stage in {"installing", "building"}
        self._tell(event)

    def _probe(self, position: int, run: MatrixRun) -> None:
        failure: BaseException | None = None
        try:
            run.run()
        except BaseException as error:  # noqa: BLE001  raised again in `wait`
            failure = error
        environment = run.environments[0] if run.environments else None
        cell = run.cells[0] if run.cells else None
        with self._changed:
            del self._running[position]
            self._failure = self._failure or failure
            self._ended.append(Probed(position=position, environment=environment, cell=cell))
            self._changed.notify_all()


@contextmanager
def workbench(request: SearchRequest, cache: Environments, show: Show) -> Iterator[Workbench]:
    """Open a stored run with its progress and a workbench, and answer signals."""
    records = Records() if request.fresh else read_records(request.home)
    with opened_run(request.home) as run_store, show(None) as progress:
        elsewhere = request.elsewhere
        bench = Workbench(
            elsewhere.environments if elsewhere else cache, records, run_store, progress, elsewhere=elsewhere
        )
        try:
            with answering(bench.running_lines, bench.emit):
                yield bench
        finally:
            bench.close()
