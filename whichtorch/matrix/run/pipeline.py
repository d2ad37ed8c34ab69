"""The pipeline: take what records answer, hand the rest to a site, keep and tell what comes of every cell.

`RecordedRun` is a stored run, made of as many steps as it takes; `MatrixRun` is one step.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.matrix.errors import why_stopped
from whichtorch.matrix.events import CellDone, EnvironmentReady, Interrupted, Show
from whichtorch.matrix.model import Cell, Environment, Record, judging_records
from whichtorch.matrix.plan.planning import PlannedCell, PlannedShare
from whichtorch.matrix.process.executor import LocalExecutor
from whichtorch.matrix.process.forking_executor import ForkingExecutor
from whichtorch.matrix.process.marks import sweep_left_behind
from whichtorch.matrix.records.store import RunStore, new_run
from whichtorch.matrix.run.signals import answering
from whichtorch.matrix.run.site import (
    CellEnd,
    EnvironmentWork,
    LocalSite,
    OtherMachines,
    Site,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from whichtorch.matrix.environments.provider import Environments
    from whichtorch.matrix.process.supervision import Supervised
    from whichtorch.matrix.records.known_records import Records

SERVERS_A_JOB = 2  # neighbours in a plan need torch alone, or with its compiler


class MatrixRun:
    """One run of planned cells. Call `run` once, then read `environments` and `cells`."""

    def __init__(self, planned: Sequence[PlannedCell], site: Site, keep_cells: bool = True) -> None:
        """Without `keep_cells` there is no `cells`: the store has them, and millions do not fit in memory."""
        self._planned, self._site, self._store, self._emit = planned, site, site.store, site.emit
        self._guard = threading.Lock()  # of all below
        # by the position of their first cell; on another machine of a cluster the same request may come out otherwise
        self._environments: dict[tuple[int, str], Environment] = {}
        self._cells: dict[int, Cell] | None = {} if keep_cells else None
        self.interrupt: KeyboardInterrupt | None = None

    @property
    def is_interrupted(self) -> bool:
        """True where the user stopped it, or the end of the time."""
        return self.interrupt is not None

    @property
    def environments(self) -> tuple[Environment, ...]:
        """The environments in the order of the plan."""
        return tuple(self._environments[position] for position in sorted(self._environments))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that are done, in the order of the plan."""
        assert self._cells is not None
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
        work: dict[tuple[str, ...], EnvironmentWork] = {}
        shares: dict[tuple[str, ...], PlannedShare] = {}
        known: dict[tuple[str, ...], Environment | None] = {}
        answered = with_answers(self._planned, self._site.environments, self._site.records)
        for position, (cell, environment, records) in enumerate(answered):
            self._store.add_scenario(cell.scenario)
            key = cell.request.key
            known[key] = environment
            if key not in work:
                shares[key] = PlannedShare(self._planned)
                work[key] = EnvironmentWork(request=cell.request, first=position, cells=shares[key])
            if environment and records:
                self._reuse(position, cell, environment, records)
            else:
                shares[key].positions.append(position)
        for asked, mine in work.items():
            if (environment := known[asked]) and not mine.cells:
                self._add_environment(environment, mine, to_run=0)
        return [each for each in work.values() if each.cells]

    def _reuse(self, position: int, cell: PlannedCell, environment: Environment, records: Sequence[Record]) -> None:
        """End a cell that records answer."""
        reused = len(judging_records(records))
        self.ended(CellEnd(position=position, planned=cell, environment=environment, records=records, reused=reused))

    def _add_environment(self, environment: Environment, work: EnvironmentWork, to_run: int) -> None:
        environment = self._site.with_variables(work.request, environment)
        with self._guard:
            self._environments[work.first, environment.id] = environment
        self._store.add_environment(environment)
        self._emit(EnvironmentReady(environment=environment, cells=to_run))

    # what the site tells, from any thread

    def acquired(self, work: EnvironmentWork, environment: Environment) -> Mapping[int, PlannedCell]:
        """Keep an environment; end its cells that records answer, or all of them if it cannot be used."""
        rest = PlannedShare(self._planned)
        for position, cell in work.cells.items() if environment.is_usable else ():
            if records := _answer(cell, environment, self._site.records):
                self._reuse(position, cell, environment, records)
            else:
                rest.positions.append(position)
        self._add_environment(environment, work, to_run=len(rest))
        if not environment.is_usable:
            for position, cell in work.cells.items():
                self.ended(CellEnd(position=position, planned=cell, environment=environment, records=()))
        return rest

    def ended(self, end: CellEnd) -> None:
        """Judge, store and tell a cell."""
        cell = end.planned.judged(end.environment, end.records, reused=end.reused, problem=end.problem)
        if self._cells is not None:
            with self._guard:
                self._cells[end.position] = cell
        self._store.add_cell(cell, [record.key for record in end.records], end.position)
        self._emit(CellDone(environment=end.environment, cell=cell))

    def interrupted(self) -> None:
        """Tell that the user wants to stop, or that the time is over; called while that is handled."""
        raised = sys.exception()
        self.interrupt = raised if isinstance(raised, KeyboardInterrupt) else KeyboardInterrupt()
        self._emit(Interrupted(why=why_stopped(self.interrupt)))


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """One stored run, made of as many steps as it takes."""

    environments: Environments
    records: Records
    store: RunStore
    show: Show
    elsewhere: OtherMachines | None = None  # None: on this machine

    def run(
        self, planned: Sequence[PlannedCell], jobs: int = 1, waiting: int = 0, keep_cells: bool = True
    ) -> MatrixRun:
        """Run cells to their end, or until the user interrupts; what is done is kept."""
        with self.show(len(planned)) as emit, ExitStack() as held:
            if self.elsewhere is not None:
                site = self.elsewhere.make_site(self.records, self.store, emit)
            else:
                site = local = LocalSite(
                    self.environments, LocalExecutor(), self.records, self.store, emit, jobs=jobs, waiting=waiting
                )
                if any(cell.options.fork for cell in planned):
                    local.forking = held.enter_context(ForkingExecutor(SERVERS_A_JOB * jobs))
            step = MatrixRun(planned, site, keep_cells)
            with answering(site.running_lines, emit, partial(attempts_on, site)):
                step.run()
        return step

    def __call__(
        self, planned: Sequence[PlannedCell], jobs: int = 1, waiting: int = 0
    ) -> tuple[Sequence[Environment], Sequence[Cell]]:
        """Run cells to their end; raise KeyboardInterrupt where the user stopped them, with what is done kept."""
        step = self.run(planned, jobs, waiting)
        if step.interrupt is not None:
            raise step.interrupt
        return step.environments, step.cells


def attempts_on(site: Site) -> tuple[Supervised, ...]:
    """Return the attempts that run now and can be looked at from here: those on this machine."""
    return site.running if isinstance(site, LocalSite) else ()


@contextmanager
def recorded_run(
    environments: Environments, records: Records, show: Show, planned: int = 0, elsewhere: OtherMachines | None = None
) -> Iterator[RecordedRun]:
    """Open a stored run of its own."""
    with opened_run(environments.home, planned) as run_store:
        yield RecordedRun(environments=environments, records=records, store=run_store, show=show, elsewhere=elsewhere)


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


def with_answers(
    planned: Sequence[PlannedCell], environments: Environments, records: Records
) -> Iterator[tuple[PlannedCell, Environment | None, Sequence[Record]]]:
    """Yield each cell with its environment as it is known, and the records that answer it: none where it must run."""
    known: dict[tuple[str, ...], Environment | None] = {}
    for cell in planned:
        key = cell.request.key
        if key not in known:
            known[key] = environments.known(cell.request)
        environment = known[key]
        yield cell, environment, _answer(cell, environment, records) if environment else ()


def _answer(cell: PlannedCell, environment: Environment, records: Records) -> Sequence[Record]:
    """Return the records that answer a cell, none where it must run."""
    known = cell.counting(records.of(cell.key(environment)), environment)
    return known if cell.is_settled(known) else ()
