"""The workbench of a search: it runs probes, several at once, each through the same pipeline as a cell of a matrix."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from whichtorch.matrix.errors import INTERRUPTED, why_stopped
from whichtorch.matrix.events import (
    Asked,
    AttemptEnded,
    AttemptStarted,
    Emit,
    EnvironmentStage,
    Event,
    Interrupted,
    ProbeDropped,
    Show,
)
from whichtorch.matrix.model import Cell, Environment, Role
from whichtorch.matrix.process.executor import Executor, LocalExecutor
from whichtorch.matrix.records.known_records import Records
from whichtorch.matrix.records.store import RunStore, read_records
from whichtorch.matrix.run.pipeline import MatrixRun, attempts_on, opened_run
from whichtorch.matrix.run.signals import answering
from whichtorch.matrix.run.site import SIGNAL_CHECK, LocalSite, Site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whichtorch.matrix.bisect.request import SearchRequest
    from whichtorch.matrix.environments.provider import Environments
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.process.supervision import Supervised
    from whichtorch.matrix.run.site import OtherMachines

QUIET = 300.0  # seconds without news before saying what is waited for: most probes and installs take less
QUIET_PROBES = 10  # the same, as a multiple of the median time of a probe


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
        self.stopped = ""  # why nothing more is begun, in words
        self._news = self._started  # when an attempt or a stage of an environment last came
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
    def run_id(self) -> str:
        """The run that the records go to."""
        return self._store.run.id

    @property
    def positions(self) -> frozenset[int]:
        """Where probes run now."""
        with self._changed:
            return frozenset(self._running)

    @property
    def _sites(self) -> list[Site]:
        with self._changed:
            return [probe.site for probe in self._running.values()]

    def attempts(self) -> list[Supervised]:
        """Return the attempts that run now on this machine."""
        return [attempt for site in self._sites for attempt in attempts_on(site)]

    def running_lines(self) -> list[str]:
        """Return for each attempt that runs now how long it has run, and where it is."""
        return [line for site in self._sites for line in site.running_lines()]

    def start(self, position: int, planned: PlannedCell) -> None:
        """Begin a probe; `wait` tells what came of it."""
        site: Site
        if self._elsewhere is None:
            site = LocalSite(self.cache, self._make_executor(), self.records, self._store, self.emit)
        else:
            site = self._elsewhere.make_site(self.records, self._store, self.emit)
        run = MatrixRun([planned], site)
        label = planned.request.label
        thread = threading.Thread(
            target=self._probe, args=(position, run, label), name=f"probe {position}", daemon=True
        )
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
            left, patience = seconds, max(QUIET, QUIET_PROBES * median(self._took or [0]))
            while not self._ended and self._failure is None and (left is None or left > 0):
                self._changed.wait(SIGNAL_CHECK if left is None else min(left, SIGNAL_CHECK))
                left = None if left is None else left - SIGNAL_CHECK
                if (quiet := time.monotonic() - self._news) > patience:
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
            self._tell(Interrupted(why=self.stopped))
        self.close()
        return self.stopped

    def close(self) -> None:
        """Cancel what runs and wait for its end."""
        with self._changed:
            running = list(self._running.values())
        for probe in running:
            probe.run.cancel()
        for probe in running:
            with suppress(RuntimeError):  # an interrupt came before it was started
                probe.thread.join()

    def emit(self, event: Event) -> None:
        """Pass an event on, and count the attempts and installs."""
        with self._changed:
            self.runs += isinstance(event, AttemptEnded) and event.attempt.role is Role.JUDGE
            self._installs += isinstance(event, EnvironmentStage) and event.stage in {"installing", "building"}
            if isinstance(event, AttemptStarted | AttemptEnded | EnvironmentStage):
                self._news = time.monotonic()
        self._tell(event)

    def _tell_quiet(self, seconds: float) -> None:
        """Tell what the search waits for, which takes a while to look up."""
        self._tell(Asked(lines=tuple(self.running_lines()), why=f"nothing has ended for {seconds:.0f} s; waiting for:"))

    def _probe(self, position: int, run: MatrixRun, label: str) -> None:
        failure, begun = None, time.monotonic()
        try:
            run.run()
        except BaseException as error:  # noqa: BLE001  raised again in `wait`
            failure = error
        environment = run.environments[0] if run.environments else None
        cell = run.cells[0] if run.cells else None
        if cell is None:
            self._tell(ProbeDropped(label=label))
        with self._changed:
            del self._running[position]
            self._failure = self._failure or failure
            self._took.append(time.monotonic() - begun)
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
            with answering(bench.running_lines, bench.emit, bench.attempts):
                yield bench
        finally:
            bench.close()
            run_store.run = run_store.run.model_copy(update={"interrupted": bench.is_interrupted})
