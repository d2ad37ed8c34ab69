"""The pipeline: take what records answer, hand the rest to a site, keep and tell what comes of every cell.

`MatrixRun` is one step; `RecordedRun` is a stored run, made of as many steps as it takes.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from matrix.events import CellDone, EnvironmentReady, Interrupted
from matrix.model import judging_records
from matrix.plan.judging import judged_cell
from matrix.process.executor import LocalExecutor
from matrix.process.supervision import owner_is_dead, state_id, sweep
from matrix.records.store import new_run
from matrix.run.signals import answering
from matrix.run.site import CellEnd, EnvironmentWork, LocalSite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matrix.environments.provider import Environments
    from matrix.events import Emit, Show
    from matrix.model import Cell, Environment
    from matrix.plan.planning import PlannedCell
    from matrix.records.store import Records, RunStore
    from matrix.run.site import Site


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
        cell = judged_cell(end.planned, end.environment, end.records, reused=end.reused, problem=end.problem)
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
    ours = state_id(home)
    sweep(lambda mark: mark.startswith(ours) and owner_is_dead(mark))
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
