"""The workbench of a search: it runs probes, several at once, each through the same pipeline as a cell of a matrix."""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

from whichtorch.base.errors import INTERRUPTED, SIGNAL_CHECK, why_stopped
from whichtorch.matrix.lab import Lab, MatrixRun, opened_lab
from whichtorch.matrix.site import ThisMachine
from whichtorch.model import Cell, Environment, Role, events
from whichtorch.records.line_index import Records
from whichtorch.search.runs_oracle import await_all

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.bisect.search_request import SearchRequest
    from whichtorch.environments.provider import Environments
    from whichtorch.matrix.planning import PlannedCell

QUIET = 300.0  # seconds without news before saying what is waited for: most probes and installs take less
QUIET_PROBES = 10  # the same, as a multiple of the median time of a probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """What came of a probe; no cell where it was cancelled."""

    position: int
    environment: Environment | None = None
    cell: Cell | None = None


@dataclass(frozen=True, slots=True)
class _RunningProbe:
    """A probe that was begun."""

    run: MatrixRun
    over: Future[None]
    label: str
    begun: float = field(default_factory=time.monotonic)


class Workbench:
    """Where the probes of one command run; several searches may follow one another on it.

    Use it from one thread; close it at the end, whatever happened.
    """

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.cache, self.records = lab.site.environments, lab.site.records
        self._tell, lab.site.emit = lab.site.emit, self.emit
        self._guard = threading.Lock()  # of what is counted
        self.runs = 0  # attempts made so far, those that only observe left out
        self._installs = 0  # and builds that were begun
        self._last = time.monotonic()  # when an attempt or a stage of an environment last came
        self._started = time.monotonic()
        self._running: dict[int, _RunningProbe] = {}
        self.stopped = ""  # why nothing more is begun, in words
        self.numbers: dict[str, int] = {}  # of each value that was tried, by the label of its environment
        self._took: list[float] = []  # seconds of each probe that has ended

    @property
    def installs(self) -> int:
        """How many installs and builds were begun."""
        return self._installs

    @property
    def is_interrupted(self) -> bool:
        """True where a user or a signal stopped it."""
        return self.stopped == INTERRUPTED

    @property
    def seconds(self) -> float:
        """How long it has been open."""
        return time.monotonic() - self._started

    @property
    def positions(self) -> frozenset[int]:
        """Where probes run whose end was not told yet."""
        return frozenset(self._running)

    def count_in(self, installs: int, runs: int, seconds: float) -> None:
        """Count what an earlier search of the same command has cost."""
        self._installs, self.runs, self._started = self._installs + installs, self.runs + runs, self._started - seconds

    def emit(self, event: events.Event) -> None:
        """Pass an event on, from any thread, and count what a search is charged for."""
        with self._guard:
            self.runs += isinstance(event, events.AttemptEnded) and event.attempt.role is Role.JUDGE
            self._installs += isinstance(event, events.EnvironmentStage) and event.stage in {"installing", "building"}
            if isinstance(event, events.AttemptStarted | events.AttemptEnded | events.EnvironmentStage):
                self._last = time.monotonic()
        self._tell(event)

    def start(self, position: int, planned: Sequence[PlannedCell]) -> None:
        """Begin a probe, which may have several cells of one environment; `wait` tells what came of it."""
        run = MatrixRun(planned, self.lab.scheduler)
        try:
            begun = run.begin()
        except BaseException:  # an interrupt
            run.cancel()
            raise
        over = begun[0] if begun else Future[None]()
        if not begun:  # records answer it
            over.set_result(None)
        self._running[position] = _RunningProbe(run, over, planned[0].request.label)

    def cancel(self, position: int) -> None:
        """Have a probe end soon, whatever it is doing; its attempts that are done are kept."""
        if position in self._running:
            self._running[position].run.cancel()

    def wait(self, seconds: float | None = None) -> list[Probed]:
        """Wait until a probe ends or `seconds` pass; return the probes that have ended.

        Raises the error of a probe that failed for another reason than its environment.
        """
        left, patience = seconds, max(QUIET, QUIET_PROBES * median(self._took or [0]))
        while not (ended := self._ended()) and (left is None or left > 0):
            running = [each.over for each in self._running.values()]
            wait(running, min(left or SIGNAL_CHECK, SIGNAL_CHECK), FIRST_COMPLETED)
            left = None if left is None else left - SIGNAL_CHECK
            if (quiet := time.monotonic() - self._last) > patience:
                patience = 2 * quiet
                threading.Thread(target=self._tell_quiet, args=(quiet,), name="quiet", daemon=True).start()
        return ended

    def stop(self, why: str | KeyboardInterrupt) -> str:
        """Cancel what runs, tell where it was, and wait for its end; nothing more is to be begun. Return why."""
        self.stopped = why if isinstance(why, str) else why_stopped(why)
        if self._running:
            self.emit(events.Interrupted(why=self.stopped))
        self.close()
        return self.stopped

    def close(self) -> None:
        """Cancel what runs and wait for its end. Results are dropped; the next search reads their records."""
        for each in self._running.values():
            each.run.cancel()
        await_all([each.over for each in self._running.values()])
        self._running.clear()  # positions have a meaning within one search only

    def _tell_quiet(self, seconds: float) -> None:
        """Tell what the search waits for, which takes a while to look up."""
        why = f"nothing has ended for {seconds:.0f} s; waiting for:"
        self.emit(events.StatusShown(lines=tuple(self.lab.site.running_lines()), why=why))

    def _ended(self) -> list[Probed]:
        """Take and return the probes that have ended."""
        found = []
        for position, each in [(position, each) for position, each in self._running.items() if each.over.done()]:
            del self._running[position]
            each.over.result()
            run = each.run
            environment, cell = next(iter(run.environments), None), next(iter(run.cells), None)
            if cell is None:
                self.emit(events.ProbeDropped(label=each.label))
            self._took.append(time.monotonic() - each.begun)
            found.append(Probed(position=position, environment=environment, cell=cell))
        return found


@contextmanager
def workbench(request: SearchRequest, cache: Environments, show: events.Show) -> Iterator[Workbench]:
    """Open a lab with its progress, and a workbench in it."""
    machines = request.machines or ThisMachine(environments=cache, jobs=request.jobs)
    records = Records(None if request.fresh else request.home)
    with opened_lab(machines, records, show) as lab, lab.shown():
        bench = Workbench(lab)
        try:
            yield bench
        finally:
            bench.close()
            lab.store.run = lab.store.run.model_copy(update={"interrupted": bench.is_interrupted})
