"""The pipeline: take what records answer, hand the rest to a site, keep and tell what comes of every cell."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from matrix.events import CellDone, EnvironmentReady, Interrupted
from matrix.plan.planning import judging
from matrix.run.site import CellEnd, EnvironmentWork

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.events import Emit
    from matrix.model import Cell, Environment
    from matrix.plan.planning import PlannedCell
    from matrix.records.store import RunStore
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
                reused = len(judging(records))
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
