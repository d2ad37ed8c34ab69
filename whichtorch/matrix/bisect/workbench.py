"""The workbench of a search: it runs probes, several at once, each through the same pipeline as a cell of a matrix."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from whichtorch.matrix.errors import INTERRUPTED, SIGNAL_CHECK, why_stopped
from whichtorch.matrix.events import (
    AttemptEnded,
    AttemptStarted,
    Emit,
    EnvironmentStage,
    Event,
    Interrupted,
    ProbeDropped,
    Show,
    StatusShown,
)
from whichtorch.matrix.model import Cell, Environment, Role
from whichtorch.matrix.records.known_records import Records
from whichtorch.matrix.records.store import read_records
from whichtorch.matrix.run.cell_scheduler import CellScheduler
from whichtorch.matrix.run.pipeline import MatrixRun, opened_run
from whichtorch.matrix.run.signals import answering
from whichtorch.matrix.run.site import ThisMachine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import Future

    from whichtorch.matrix.bisect.search_request import SearchRequest
    from whichtorch.matrix.environments.provider import Environments
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.run.work import Site

QUIET = 300.0  # seconds without news before saying what is waited for: most probes and installs take less
QUIET_PROBES = 10  # the same, as a multiple of the median time of a probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What came of a probe; no cell where it was cancelled."""

    position: int
    environment: Environment | None = None
    cell: Cell | None = None


class CountedEvents:
    """Passes events on, and counts what a search is charged for."""

    def __init__(self, tell: Emit) -> None:
        self._tell = tell
        self._guard = threading.Lock()  # of all below
        self.runs = 0  # attempts made so far, those that only observe left out
        self.installs = 0  # and builds that were begun
        self.last = time.monotonic()  # when an attempt or a stage of an environment last came

    def __call__(self, event: Event) -> None:
        """Take in an event, from any thread."""
        with self._guard:
            self.runs += isinstance(event, AttemptEnded) and event.attempt.role is Role.JUDGE
            self.installs += isinstance(event, EnvironmentStage) and event.stage in {"installing", "building"}
            if isinstance(event, AttemptStarted | AttemptEnded | EnvironmentStage):
                self.last = time.monotonic()
        self._tell(event)


class Workbench:
    """Where the probes of one command run; several searches may follow one another on it.

    Use it from one thread; close it at the end, whatever happened.
    """

    def __init__(self, site: Site, emit: CountedEvents) -> None:
        """`emit` is where the site tells what happens."""
        self.cache, self.records, self.emit = site.environments, site.records, emit
        self.site = site
        self._scheduler = CellScheduler(site)
        self._started = time.monotonic()
        self._changed = threading.Condition()  # guards what is below
        self._running: dict[int, MatrixRun] = {}
        self._ended: list[Probed] = []
        self._failure: BaseException | None = None
        self.stopped = ""  # why nothing more is begun, in words
        self._took: list[float] = []  # seconds of each probe that has ended

    @property
    def runs(self) -> int:
        """How many attempts were made, those that only observe left out."""
        return self.emit.runs

    @property
    def installs(self) -> int:
        """How many installs and builds were begun."""
        return self.emit.installs

    @property
    def is_interrupted(self) -> bool:
        """True where a user or a signal stopped it."""
        return self.stopped == INTERRUPTED

    @property
    def seconds(self) -> float:
        """How long it has been open."""
        return time.monotonic() - self._started

    @property
    def run_id(self) -> str:
        """The run that the records go to."""
        return self.site.store.run.id

    @property
    def positions(self) -> frozenset[int]:
        """Where probes run now."""
        with self._changed:
            return frozenset(self._running)

    def start(self, position: int, planned: Sequence[PlannedCell]) -> None:
        """Begin a probe, which may have several cells of one environment; `wait` tells what came of it."""
        run = MatrixRun(planned, self._scheduler)
        ended = partial(self._probed, position, run, planned[0].request.label, time.monotonic())
        with self._changed:
            self._running[position] = run
        try:
            begun = run.begin()
        except BaseException:  # an interrupt
            run.cancel()
            del self._running[position]
            raise
        if begun:
            begun[0].add_done_callback(ended)
        else:
            ended()

    def cancel(self, position: int) -> None:
        """Have a probe end soon, whatever it is doing; its attempts that are done are kept."""
        with self._changed:
            run = self._running.get(position)
        if run is not None:
            run.cancel()

    def wait(self, seconds: float | None = None) -> list[Probed]:
        """Wait until a probe ends or `seconds` pass; return the probes that have ended.

        Raises the error of a probe that failed for another reason than its environment.
        """
        with self._changed:
            left, patience = seconds, max(QUIET, QUIET_PROBES * median(self._took or [0]))
            while not self._ended and self._failure is None and (left is None or left > 0):
                self._changed.wait(SIGNAL_CHECK if left is None else min(left, SIGNAL_CHECK))
                left = None if left is None else left - SIGNAL_CHECK
                if (quiet := time.monotonic() - self.emit.last) > patience:
                    patience = 2 * quiet
                    threading.Thread(target=self._tell_quiet, args=(quiet,), name="quiet", daemon=True).start()
            if self._failure is not None:
                raise self._failure
            ended, self._ended = self._ended, []
            return ended

    def stop(self, why: str | KeyboardInterrupt) -> str:
        """Cancel what runs, tell where it was, and wait for its end; nothing more is to be begun. Return why."""
        self.stopped = why if isinstance(why, str) else why_stopped(why)
        if self.positions:
            self.emit(Interrupted(why=self.stopped))
        self.close()
        return self.stopped

    def close(self) -> None:
        """Cancel what runs and wait for its end. Results are dropped; the next search reads their records."""
        for position in self.positions:
            self.cancel(position)
        with self._changed:
            while self._running:
                self._changed.wait(SIGNAL_CHECK)
            self._ended.clear()  # positions have a meaning within one search only

    def _tell_quiet(self, seconds: float) -> None:
        """Tell what the search waits for, which takes a while to look up."""
        self.emit(
            StatusShown(
                lines=tuple(self.site.running_lines()), why=f"nothing has ended for {seconds:.0f} s; waiting for:"
            )
        )

    def _probed(
        self, position: int, run: MatrixRun, label: str, begun: float, ended: Future[None] | None = None
    ) -> None:
        """Keep what came of a probe; called in the scheduler's thread, or where records answer the probe."""
        environment = run.environments[0] if run.environments else None
        cell = run.cells[0] if run.cells else None
        if cell is None:
            self.emit(ProbeDropped(label=label))
        with self._changed:
            del self._running[position]
            self._failure = self._failure or (ended.exception() if ended else None)
            self._took.append(time.monotonic() - begun)
            self._ended.append(Probed(position=position, environment=environment, cell=cell))
            self._changed.notify_all()


@contextmanager
def workbench(request: SearchRequest, cache: Environments, show: Show) -> Iterator[Workbench]:
    """Open a stored run with its progress and a workbench, and answer signals."""
    machines = request.machines or ThisMachine(environments=cache, jobs=request.jobs)
    records = Records() if request.fresh else read_records(request.home)
    with opened_run(request.home) as run_store, show(None) as progress:
        emit = CountedEvents(progress)
        with machines.site(records, run_store, emit) as site:
            bench = Workbench(site, emit)
            try:
                with answering(site.running_lines, emit, lambda: site.running):
                    yield bench
            finally:
                bench.close()
                run_store.run = run_store.run.model_copy(update={"interrupted": bench.is_interrupted})
