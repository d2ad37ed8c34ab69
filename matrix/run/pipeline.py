"""The pipeline: take what records answer, hand the rest to a site, keep and tell what comes of every cell.

`PlannedMatrix` is what a user asks for, with what is known of it already and what the rest takes. `RecordedRun` is a
stored run, made of as many steps as it takes; `MatrixRun` is one step.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.environments.cache import EnvironmentCache
from matrix.environments.configs import cell_environ, recorded
from matrix.events import CellDone, EnvironmentReady, Interrupted, Show
from matrix.model import Cell, Environment, Record, judging_records
from matrix.plan.planning import MatrixRequest, PlannedCell, plan_matrix
from matrix.process.executor import LocalExecutor, default_jobs
from matrix.process.forking_executor import ForkingExecutor
from matrix.process.marks import sweep_left_behind
from matrix.records.store import Records, RunStore, new_run, read_records
from matrix.run.signals import answering
from matrix.run.site import INSTALLS_AT_ONCE, CellEnd, EnvironmentWork, LocalSite, Site

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matrix.environments.provider import Environments

SERVERS_A_JOB = 2  # neighbours in a plan need torch alone, or with its compiler
TYPICAL_CELL = 5.5  # seconds: 152 cells of the suite take eight minutes on two cores, with four installs


class MatrixRun:
    """One run of planned cells. Call `run` once, then read `environments` and `cells`."""

    def __init__(self, planned: Sequence[PlannedCell], site: Site) -> None:
        self._planned, self._site, self._store, self._emit = planned, site, site.store, site.emit
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
            rest = self._unanswered()
        except KeyboardInterrupt:
            self.interrupted()
            return
        if rest:
            self._site.run(rest, self)

    def cancel(self) -> None:
        """Have `run`, in another thread, stop what runs and return; what is done is kept."""
        self._site.cancel()

    def _unanswered(self) -> list[EnvironmentWork]:
        """End the cells that records answer without an install; return the others by their environments."""
        work: dict[tuple[str, str], EnvironmentWork] = {}
        known: dict[tuple[str, str], Environment | None] = {}
        answered = with_answers(self._planned, self._site.environments, self._site.records)
        for position, (cell, environment, records) in enumerate(answered):
            self._store.add_scenario(cell.scenario)
            key = (cell.request.install_key, cell.request.config.name)
            known[key] = environment
            mine = work.setdefault(key, EnvironmentWork(request=cell.request, first=position, cells={}))
            if environment and records:
                self._reuse(position, cell, environment, records)
            else:
                mine.cells[position] = cell
        for key, environment in known.items():
            if environment and not work[key].cells:
                self._add_environment(environment, work[key], to_run=0)
        return [each for each in work.values() if each.cells]

    def _reuse(self, position: int, cell: PlannedCell, environment: Environment, records: Sequence[Record]) -> None:
        """End a cell that records answer."""
        reused = len(judging_records(records))
        self.ended(CellEnd(position=position, planned=cell, environment=environment, records=records, reused=reused))

    def _add_environment(self, environment: Environment, work: EnvironmentWork, to_run: int) -> None:
        if environment.is_usable:
            config, home = work.request.config, self._site.environments.home
            variables = recorded(cell_environ(work.request, environment, home), config)
            environment = environment.model_copy(update={"variables": variables})
        with self._guard:
            self._environments[work.first] = environment
        self._store.add_environment(environment)
        self._emit(EnvironmentReady(environment=environment, cells=to_run))

    # what the site tells, from any thread

    def acquired(self, work: EnvironmentWork, environment: Environment) -> dict[int, PlannedCell]:
        """Keep an environment; end its cells that records answer, or all of them if it cannot be used."""
        rest = {}
        for position, cell in work.cells.items() if environment.is_usable else ():
            if records := _answer(cell, environment, self._site.records):
                self._reuse(position, cell, environment, records)
            else:
                rest[position] = cell
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One stored run, made of as many steps as it takes."""

    environments: Environments
    records: Records
    store: RunStore
    show: Show

    def run(self, planned: Sequence[PlannedCell], jobs: int = 1, waiting: int = 0) -> MatrixRun:
        """Run cells to their end, or until the user interrupts; what is done is kept."""
        with self.show(len(planned)) as emit, ExitStack() as held:
            executor, may_fork = LocalExecutor(), any(cell.options.fork for cell in planned)
            site = LocalSite(self.environments, executor, self.records, self.store, emit, jobs=jobs, waiting=waiting)
            if may_fork:
                site.forking = held.enter_context(ForkingExecutor(SERVERS_A_JOB * jobs))
            step = MatrixRun(planned, site)
            with answering(lambda: site.running, emit):
                step.run()
        return step

    def __call__(
        self, planned: Sequence[PlannedCell], jobs: int = 1, waiting: int = 0
    ) -> tuple[Sequence[Environment], Sequence[Cell]]:
        """Run cells to their end; raise KeyboardInterrupt where the user stopped them, with what is done kept."""
        step = self.run(planned, jobs, waiting)
        if step.is_interrupted:
            raise KeyboardInterrupt
        return step.environments, step.cells


@contextmanager
def recorded_run(environments: Environments, records: Records, show: Show, planned: int = 0) -> Iterator[RecordedRun]:
    """Open a stored run of its own."""
    with opened_run(environments.home, planned) as run_store:
        yield RecordedRun(environments=environments, records=records, store=run_store, show=show)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedMatrix:
    """The cells that a user asks for, and what earlier runs know of them."""

    planned: Sequence[PlannedCell]
    cache: EnvironmentCache
    records: Records
    jobs: int  # attempts at once
    waiting: int = 0  # more of them that are expected to hang
    notes: tuple[str, ...] = ()  # on how the environments were chosen

    @classmethod
    def of(cls, request: MatrixRequest) -> PlannedMatrix:
        """Plan the cells of a request, and read what is known."""
        disk_budget, limit = request.disk_budget_mb, request.install_timeout
        cache = EnvironmentCache(request.home, disk_budget_mb=disk_budget, install_timeout=limit)
        planned, notes = plan_matrix(request)
        jobs, records = request.jobs or default_jobs(), read_records(request.home)
        waiting = 0 if request.jobs else jobs
        return cls(planned=planned, cache=cache, records=records, jobs=jobs, waiting=waiting, notes=notes)

    @contextmanager
    def run(self, show: Show) -> Iterator[tuple[MatrixRun, RunStore]]:
        """Run the cells in a stored run of their own, which stays open."""
        with recorded_run(self.cache, self.records, show, len(self.planned)) as run_steps:
            yield run_steps.run(self.planned, self.jobs, self.waiting), run_steps.store

    def forecast(self) -> Iterator[str]:
        """Yield what a user reads before a run: how much is known, and about how much disk and time the rest takes.

        Installs have the usual size and duration.
        """
        answered = with_answers(self.planned, self.cache, self.records)
        wanted = [cell for cell, _, answers in answered if not answers]
        environments = len({cell.request.label for cell in self.planned})
        words = [f"{_number(environments, 'environment')}, {_number(len(self.planned), 'cell')}"]
        if len(wanted) < len(self.planned):
            words.append(f"{len(self.planned) - len(wanted)} known, {len(wanted)} to run" if wanted else "all known")
        yield "; ".join([*words, *self._cost([cell for cell in wanted if cell.request.problem is None])])
        known_bugs = sum((line := cell.expectation(None)) is not None and line.outcome.is_red for cell in self.planned)
        if known_bugs:
            verbs = "shows a known bug and is" if known_bugs == 1 else "show known bugs and are"
            yield f"{known_bugs} of them {verbs} expected to fail or hang"

    def _cost(self, wanted: Sequence[PlannedCell]) -> Iterator[str]:
        """Yield how much disk and time cells take, where they take any."""
        if not wanted:
            return
        requests = {cell.request.install_key: cell.request for cell in wanted}
        installs = [request for request in requests.values() if not self.cache.is_installed(request)]
        if installs:
            yield f"installs about {max(1, round(self.cache.expected_size(installs) / 1e9))} GB"
        seconds = self.cache.typical_install() * len(installs) / min(INSTALLS_AT_ONCE, len(installs) or 1)
        for cell in wanted:
            slowest = self.records.slowest_pass(cell.scenario, cell.variant)
            typical = TYPICAL_CELL if slowest is None else slowest
            seconds += cell.options.repeat * min(cell.limits.timeout, typical) / self.jobs
        if seconds:
            yield f"about {_duration(seconds)} with {_number(self.jobs, 'job')}"


def with_answers(
    planned: Sequence[PlannedCell], environments: Environments, records: Records
) -> Iterator[tuple[PlannedCell, Environment | None, Sequence[Record]]]:
    """Yield each cell with its environment as it is known, and the records that answer it: none where it must run."""
    known: dict[tuple[str, str], Environment | None] = {}
    for cell in planned:
        key = (cell.request.install_key, cell.request.config.name)
        if key not in known:
            known[key] = environments.known(cell.request)
        environment = known[key]
        yield cell, environment, _answer(cell, environment, records) if environment else ()


def _answer(cell: PlannedCell, environment: Environment, records: Records) -> Sequence[Record]:
    """Return the records that answer a cell, none where it must run."""
    known = cell.counting(records.of(cell.key(environment)), environment)
    return known if cell.is_settled(known) else ()


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return "a minute" if seconds > 30 else f"{max(1, round(seconds / 10)) * 10} seconds"
    return f"{round(seconds / 60)} minutes" if seconds < 5400 else f"{round(seconds / 3600)} hours"
