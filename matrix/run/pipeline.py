"""The pipeline: take what records answer, hand the rest to a site, keep and tell what comes of every cell.

`MatrixRun` is one step; `RecordedRun` is a stored run, made of as many steps as it takes. `forecast` tells beforehand
how much is known already, and what the rest takes.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from matrix.events import CellDone, Emit, EnvironmentReady, Interrupted, Show
from matrix.model import Cell, Environment, Record, judging_records
from matrix.process.executor import LocalExecutor
from matrix.process.supervision import sweep_left_behind
from matrix.records.store import Records, RunStore, new_run
from matrix.run.signals import answering
from matrix.run.site import INSTALLS_AT_ONCE, CellEnd, EnvironmentWork, LocalSite, Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matrix.environments.cache import EnvironmentCache
    from matrix.environments.provider import Environments
    from matrix.plan.planning import PlannedCell

TYPICAL_CELL = 5.5  # seconds: 152 cells of the suite take eight minutes on two cores, with four installs


class MatrixRun:
    """One run of planned cells. Call `run` once, then read `environments` and `cells`."""

    def __init__(self, planned: Sequence[PlannedCell], site: Site, store: RunStore, emit: Emit) -> None:
        self._site, self._store, self._emit = site, store, emit
        self._work: dict[tuple[str, str], EnvironmentWork] = {}
        for position, cell in enumerate(planned):
            store.add_scenario(cell.scenario)
            key = (cell.request.install_key, cell.request.config.name)
            work = self._work.setdefault(key, EnvironmentWork(request=cell.request, cells={}))
            work.cells[position] = cell
        self._first_positions = {key: min(work.cells) for key, work in self._work.items()}
        self._guard = threading.Lock()  # of all below
        self._environments: dict[int, Environment] = {}  # by the position of their first cell
        self._cells: dict[int, Cell] = {}
        self.is_interrupted = False

    @property
    def environments(self) -> tuple[Environment, ...]:
        """The environments in the order of the plan."""
        return tuple(self._environments[position] for position in sorted(self._environments))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that are done, in the order of the plan."""
        return tuple(self._cells[position] for position in sorted(self._cells))

    def run(self) -> None:
        """Run to the end. An interrupt stops what runs and keeps what is done; a second one is raised."""
        try:
            rest = [work for work in map(self._unanswered, self._work.values()) if work.cells]
        except KeyboardInterrupt:
            self.interrupted()
            return
        self._site.run(rest, self)

    def cancel(self) -> None:
        """Have `run`, in another thread, stop what runs and return; what is done is kept."""
        self._site.cancel()

    def _unanswered(self, work: EnvironmentWork) -> EnvironmentWork:
        """End the cells that records answer without an install; return the others."""
        environment = self._site.known(work.request)
        if environment is None:
            return work
        cells = self._settled(environment, work.cells)
        if not cells:
            self._add_environment(environment, work, to_run=0)
        return EnvironmentWork(request=work.request, cells=cells)

    def _settled(self, environment: Environment, cells: dict[int, PlannedCell]) -> dict[int, PlannedCell]:
        """End the cells that records answer; return the others."""
        rest = {}
        for position, cell in cells.items():
            records = self._site.known_records(cell, environment)
            if cell.is_settled(records):
                reused = len(judging_records(records))
                self.ended(
                    CellEnd(position=position, planned=cell, environment=environment, records=records, reused=reused)
                )
            else:
                rest[position] = cell
        return rest

    def _add_environment(self, environment: Environment, work: EnvironmentWork, to_run: int) -> None:
        with self._guard:
            self._environments[self._first_positions[work.request.install_key, work.request.config.name]] = environment
        self._store.add_environment(environment)
        self._emit(EnvironmentReady(environment=environment, cells=to_run))

    # what the site tells, from any thread

    def acquired(self, work: EnvironmentWork, environment: Environment) -> dict[int, PlannedCell]:
        """Keep an environment; end its cells that records answer, or all of them if it cannot be used."""
        rest = self._settled(environment, work.cells) if environment.is_usable else {}
        self._add_environment(environment, work, to_run=len(rest))
        if not environment.is_usable:
            for position, cell in work.cells.items():
                self.ended(CellEnd(position=position, planned=cell, environment=environment, records=()))
        return rest

    def ended(self, end: CellEnd) -> None:
        """Judge, store and tell a cell."""
        cell = end.planned.judged(end.environment, end.records, reused=end.reused, problem=end.problem)
        with self._guard:
            self._cells[end.position] = cell
        self._store.add_cell(cell, [record.key for record in end.records], end.position)
        self._emit(CellDone(environment=end.environment, cell=cell))

    def interrupted(self) -> None:
        """Tell that the user wants to stop."""
        self.is_interrupted = True
        self._emit(Interrupted())


class RecordedRun:
    """One stored run, made of as many steps as it takes."""

    def __init__(self, environments: Environments, records: Records, run_store: RunStore, show: Show) -> None:
        self._environments, self._records, self.store, self._show = environments, records, run_store, show

    def run(self, planned: Sequence[PlannedCell], jobs: int = 1, waiting: int = 0) -> MatrixRun:
        """Run cells to their end, or until the user interrupts; what is done is kept."""
        with self._show(len(planned)) as emit:
            executor = LocalExecutor()
            site = LocalSite(self._environments, executor, self._records, self.store, emit, jobs=jobs, waiting=waiting)
            step = MatrixRun(planned, site, self.store, emit)
            with answering(lambda: site.running, emit):
                step.run()
        return step

    def __call__(self, planned: Sequence[PlannedCell], jobs: int = 1) -> tuple[Sequence[Environment], Sequence[Cell]]:
        """Run cells to their end; raise KeyboardInterrupt where the user stopped them, with what is done kept."""
        step = self.run(planned, jobs)
        if step.is_interrupted:
            raise KeyboardInterrupt
        return step.environments, step.cells


@contextmanager
def recorded_run(environments: Environments, records: Records, show: Show, planned: int = 0) -> Iterator[RecordedRun]:
    """Open a stored run of its own."""
    with opened_run(environments.home, planned) as run_store:
        yield RecordedRun(environments, records, run_store, show)


@contextmanager
def opened_run(home: Path, planned: int = 0) -> Iterator[RunStore]:
    """Open a stored run, after ending what a killed tool has left behind; at the end it knows how long it took."""
    started = time.monotonic()
    sweep_left_behind(home)
    with new_run(home, tuple(sys.argv[1:]), planned) as run_store:
        interrupted = False
        try:
            yield run_store
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            run = run_store.run
            seconds = round(time.monotonic() - started, 3)
            run_store.finish(run.model_copy(update={"seconds": seconds, "interrupted": interrupted or run.interrupted}))


def forecast(planned: Sequence[PlannedCell], cache: EnvironmentCache, records: Records, jobs: int) -> Iterator[str]:
    """Yield what a user reads before a run: how much is known, and about how much disk and time the rest takes.

    `jobs` attempts run at once, and installs have the usual size and duration.
    """
    wanted = [cell for cell, _, answers in with_answers(planned, cache, records) if not answers]
    possible = [cell for cell in wanted if cell.request.problem is None]
    requests = {cell.request.install_key: cell.request for cell in possible}
    installs = [request for request in requests.values() if not cache.is_installed(request)]
    seconds = cache.typical_install() * len(installs) / min(INSTALLS_AT_ONCE, len(installs)) if installs else 0.0
    for cell in possible:
        slowest = records.slowest_pass(cell.scenario, cell.variant)
        typical = TYPICAL_CELL if slowest is None else slowest
        seconds += cell.options.repeat * min(cell.limits.timeout, typical) / jobs
    environments = len({cell.request.label for cell in planned})
    words = [f"{_number(environments, 'environment')}, {_number(len(planned), 'cell')}"]
    if len(wanted) < len(planned):
        words.append(f"{len(planned) - len(wanted)} known, {len(wanted)} to run" if wanted else "all known")
    if installs:
        words.append(f"installs about {max(1, round(cache.expected_size(installs) / 1e9))} GB")
    if seconds:
        words.append(f"about {_duration(seconds)} with {_number(jobs, 'job')}")
    yield "; ".join(words)
    known_bugs = sum((line := cell.expectation(None)) is not None and line.outcome.is_red for cell in planned)
    if known_bugs:
        verbs = "shows a known bug and is" if known_bugs == 1 else "show known bugs and are"
        yield f"{known_bugs} of them {verbs} expected to fail or hang"


def with_answers(
    planned: Sequence[PlannedCell], cache: EnvironmentCache, records: Records
) -> Iterator[tuple[PlannedCell, Environment | None, Sequence[Record]]]:
    """Yield each cell with its environment as it is known, and the records that answer it: none where it must run."""
    environments: dict[tuple[str, str], Environment | None] = {}
    for cell in planned:
        key = (cell.request.install_key, cell.request.config.name)
        if key not in environments:
            environments[key] = cache.known(cell.request)
        environment = environments[key]
        known = records.of(cell.key(environment)) if environment and not cell.options.fresh else []
        yield cell, environment, known if cell.is_settled(known) else ()


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return "a minute" if seconds > 30 else f"{max(1, round(seconds / 10)) * 10} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{round(seconds / 3600)} hours"
