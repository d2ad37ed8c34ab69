"""Trials on the workers of a site: what is sent there, and the observation that comes back.

A worker makes each with a `Runner` of its own. The scheduler chooses the worker, and handles lost ones.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from whichtorch.matrix.errors import GOES_ON, PreventedError
from whichtorch.matrix.model import Environment, Model
from whichtorch.matrix.records.known_records import Records
from whichtorch.matrix.run.cell_scheduler import CellScheduler
from whichtorch.matrix.run.work import CellEnd, EnvironmentWork
from whichtorch.matrix.search.worker_pool import await_all
from whichtorch.matrix.trial.observation import Observation, text_of
from whichtorch.matrix.trial.runner import Runner
from whichtorch.matrix.trial.variation import Variation  # noqa: TC001  pydantic reads it

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from whichtorch.matrix.events import Emit, Show
    from whichtorch.matrix.model import Request
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.records.store import RunStore
    from whichtorch.matrix.run.site import LocalSite, ReadyCell
    from whichtorch.matrix.run.work import Machines, Site


class RemoteTrial(Model):
    """A run of a variation, as it is sent to a worker."""

    limit: float  # seconds
    variation: Variation
    forks: bool = False  # as in `Runner`

    def run(self, cell: ReadyCell, site: LocalSite) -> CellEnd | None:
        """Make the run on this machine; None where it was interrupted."""
        runner = Runner.of_site(
            site,
            cell.planned,
            cell.environment,
            beside=cell.planned.scenario.path.parent,
            caches=site.caches,
            forks=self.forks,
            cancelled=cell.cancelled,
        )
        try:
            seen = runner.run(self.limit, self.variation)
        except KeyboardInterrupt:
            return None
        return CellEnd(position=cell.position, records=(seen.record,), notes=dict(seen.notes))


@dataclass(slots=True)
class _WorkResult:
    """The results of one piece of work."""

    environment: Environment | None = None
    end: CellEnd | None = None

    def acquired(self, work: EnvironmentWork, environment: Environment) -> Mapping[int, PlannedCell]:
        """Keep the environment; return the cells to run in it, none if it cannot be used."""
        self.environment = environment
        return work.cells if environment.is_usable else {}

    def ended(self, _environment: Environment, end: CellEnd) -> None:
        """Keep the end of the run."""
        self.end = end


@dataclass(slots=True)
class RemoteTrials:
    """Has trials made by the workers of a site. Its methods may be called from several threads."""

    site: Site
    _scheduler: CellScheduler = field(init=False)
    _requests: dict[str, Request] = field(default_factory=dict)  # by the environment's id
    _guard: threading.Lock = field(default_factory=threading.Lock)  # of the two below
    _under_way: list[EnvironmentWork] = field(default_factory=list)
    _is_over: bool = False

    def __post_init__(self) -> None:
        self._scheduler = CellScheduler(self.site)

    def acquire(self, request: Request, show: Show) -> Environment:
        """Have a worker make an environment ready; show its stages. Where none can, its outcome says why."""
        with show(None) as emit, _telling(self.site, emit):
            environment = self._result_of(EnvironmentWork(request=request, first=0, cells={})).environment
        if environment is None:
            raise KeyboardInterrupt
        self._requests[environment.id] = request
        return environment

    def run(self, runner: Runner, limit: float, variation: Variation) -> Observation:
        """Return what comes of a run; raises PreventedError where no worker can make it."""
        trial = RemoteTrial(limit=limit, variation=variation, forks=runner.forks)
        request = self._requests[runner.environment.id]
        result = self._result_of(EnvironmentWork(request=request, first=0, cells={0: runner.planned}, trial=trial))
        label, environment, end = runner.environment.label, result.environment, result.end
        if environment is not None and not environment.is_usable:
            raise PreventedError(f"{label} cannot be used: {environment.reason or environment.outcome}", hint=GOES_ON)
        if end is None:
            raise KeyboardInterrupt
        if not end.records:
            raise PreventedError(f"{runner.planned.name} in {label}: {end.problem}", hint=GOES_ON)
        (record,) = end.records
        return Observation(record=record, stderr=text_of(runner.home / record.attempt.stderr), notes=end.notes)

    def interrupt(self) -> None:
        """End all runs, and start no other."""
        with self._guard:
            self._is_over = True
            under_way = tuple(self._under_way)
        for work in under_way:
            self._scheduler.cancel(work)

    def _result_of(self, work: EnvironmentWork) -> _WorkResult:
        """Have work done, and return its results."""
        result = _WorkResult()
        with self._guard:
            if self._is_over:
                return result
            self._under_way.append(work)
        over = self._scheduler.add(work, result)
        try:
            await_all([over])
            over.result()
        except KeyboardInterrupt:
            self._scheduler.cancel(work)
            raise
        finally:
            with self._guard:
                self._under_way = [each for each in self._under_way if each is not work]
        return result


@contextmanager
def remote_trials(machines: Machines, store: RunStore) -> Iterator[RemoteTrials]:
    """Open machines for trials; stop those that still run at the end."""
    with machines.site(Records(), store, lambda _: None) as site:
        trials = RemoteTrials(site)
        try:
            yield trials
        finally:
            trials.interrupt()


@contextmanager
def _telling(site: Site, emit: Emit) -> Iterator[None]:
    """Have a site report what happens to `emit`."""
    before, site.emit = site.emit, emit
    try:
        yield
    finally:
        site.emit = before
