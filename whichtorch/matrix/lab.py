"""The lab: what a command runs its scripts in, on this machine or on a cluster, with a stored run for what comes of it.

A matrix gives it cells, which get the attempts that they need (`run`). A search gives it trials, each of which is one
run of a script that is changed in some way (`start`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import text_of
from whichtorch.base.errors import GOES_ON, PreventedError
from whichtorch.matrix.cell_scheduler import CellScheduler
from whichtorch.matrix.pipeline import MatrixRun
from whichtorch.matrix.signals import Lookout, answering
from whichtorch.matrix.test_session import read_session
from whichtorch.matrix.variation import PLAIN, Observation, Variation
from whichtorch.matrix.work import CellEnd, EnvironmentWork, Machines, Site
from whichtorch.records.store import RunStore, new_run
from whichtorch.records.stored_runs import clear_left_behind
from whichtorch.search.worker_pool import WorkerPool, await_all
from whichtorch.suite.companions import companions_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.model import Cell, Environment, Request
    from whichtorch.model.events import Event, Show
    from whichtorch.records.known_records import Records


@dataclass(slots=True, eq=False)
class Order:
    """A trial, or an environment, that was asked for, and what came of it."""

    work: EnvironmentWork
    over: Future[None] = field(init=False)
    environment: Environment | None = None  # None: it was cancelled before the environment was there
    end: CellEnd | None = None  # None: it was cancelled, or the environment cannot be used

    def acquired(self, work: EnvironmentWork, environment: Environment) -> Mapping[int, PlannedCell]:
        """Keep the environment; return the cells to run in it, none if it cannot be used."""
        self.environment = environment
        return work.cells if environment.is_usable else {}

    def ended(self, environment: Environment, end: CellEnd) -> None:
        """Keep the end of the run."""
        self.environment, self.end = environment, end


class Lab:
    """Where the scripts of one command run. Its methods may be called from several threads."""

    def __init__(self, site: Site, show: Show) -> None:
        self.site, self._show = site, show
        self.scheduler = CellScheduler(site)
        self.lookout = Lookout(lambda: site.running, lambda event: site.emit(event))  # as `shown` sets it
        self._requests: dict[str, list[Request]] = {}  # of environments that it holds, by their ids
        self._guard = threading.Lock()  # of the two below
        self._orders: list[Order] = []
        self._is_over = False

    @property
    def home(self) -> Path:
        """The state folder."""
        return self.site.environments.home

    @property
    def store(self) -> RunStore:
        """The stored run."""
        return self.site.store

    @contextmanager
    def shown(self, total: int | None = None) -> Iterator[None]:
        """Show what happens, with progress through so many cells, and answer signals that ask for it."""
        with self._show(total) as emit:
            before, self.site.emit = self.site.emit, emit
            try:
                with answering(self.site.running_lines, emit):
                    yield
            finally:
                self.site.emit = before

    # cells

    def run(self, planned: Sequence[PlannedCell], keep_cells: bool = True) -> MatrixRun:
        """Run cells to their end, or until the user interrupts; what is done is kept."""
        step = MatrixRun(planned, self.scheduler, keep_cells)
        with self.shown(len(planned)):
            step.run()
        return step

    def __call__(self, planned: Sequence[PlannedCell]) -> tuple[Sequence[Environment], Sequence[Cell]]:
        """Run cells to their end; raise KeyboardInterrupt where the user stopped them, with what is done kept."""
        step = self.run(planned)
        if step.interrupt is not None:
            raise step.interrupt
        return step.environments, step.cells

    # trials

    def acquire(self, request: Request) -> Environment:
        """Make an environment ready, and hold it until the end. Where it cannot be made, its outcome says why."""
        made = self.ended(self._start(EnvironmentWork(request=request, first=0, cells={})))
        if made.environment is None:
            raise KeyboardInterrupt
        self._requests.setdefault(made.environment.id, []).append(request)
        return made.environment

    def start(self, planned: PlannedCell, environment: Environment, trial: Variation) -> Order:
        """Begin a trial of a cell's script in an environment."""
        request = self._requests.get(environment.id, [planned.request])[0]
        work = EnvironmentWork(request=request, first=0, cells={0: planned}, environment=environment, trial=trial)
        return self._start(work)

    def ended(self, order: Order) -> Order:
        """Wait for the end of an order; an interrupt ends it."""
        try:
            await_all([order.over])
            order.over.result()
        except KeyboardInterrupt:
            self.scheduler.cancel(order.work)
            raise
        return order

    def interrupt(self) -> None:
        """End all trials, and begin no other."""
        with self._guard:
            self._is_over = True
            under_way = [each for each in self._orders if not each.over.done()]
        for each in under_way:
            self.scheduler.cancel(each.work)

    def close(self) -> None:
        """End what still runs, and let the environments go."""
        self.interrupt()
        await_all([each.over for each in self._orders])
        for requests in self._requests.values():
            for request in requests:
                self.site.environments.release(request)

    def _start(self, work: EnvironmentWork) -> Order:
        order = Order(work)
        with self._guard:
            if self._is_over:
                raise KeyboardInterrupt
            self._orders = [each for each in self._orders if not each.over.done()]
            order.over = self.scheduler.add(work, order)
            self._orders.append(order)
        return order


@contextmanager
def opened_lab(machines: Machines, records: Records, show: Show, planned: int = 0) -> Iterator[Lab]:
    """Open a lab with a stored run of its own, of so many planned cells; at the end nothing runs there any more."""

    def silent(_: Event) -> None:
        """Tell nobody: nothing is shown now."""

    with opened_run(machines.environments.home, planned) as store, machines.site(records, store, silent) as site:
        lab = Lab(site, show)
        with lab.lookout:
            try:
                yield lab
            finally:
                lab.close()


@contextmanager
def opened_run(home: Path, planned: int = 0) -> Iterator[RunStore]:
    """Open a stored run, after ending what a killed tool has left behind; at the end it knows how long it took."""
    started = time.monotonic()
    clear_left_behind(home)
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


@dataclass(kw_only=True)
class Runner:
    """Where the runs of one test are made."""

    lab: Lab
    planned: PlannedCell  # script, variant, and the limits of a run
    environment: Environment
    beside: Path = field(default_factory=Path.cwd)  # the folder that the user started the script in
    forks: bool = False  # a forked run was seen to show what a cold one shows
    tell: Callable[[str], None] = lambda _: None
    cut_off: str = ""  # how long the run took that was interrupted, and where it was, in words

    @cached_property
    def companions(self) -> dict[str, Path]:
        """What the script needs beside itself."""
        scenario = self.planned.scenario
        return companions_of(scenario, scenario.folder or self.beside)

    def at(self, environment: Environment) -> Runner:
        """Return where the same test runs in another environment."""
        return replace(self, environment=environment)

    def run(self, limit: float, variation: Variation = PLAIN) -> Observation:
        """Run the script once, for so many seconds; raises as what `start` returns."""
        return self.start(limit, variation)()

    def start(self, limit: float, variation: Variation = PLAIN) -> Callable[[], Observation]:
        """Begin a run; return what waits for its end.

        That raises KeyboardInterrupt where it was interrupted, PreventedError where no worker can make the run.
        """
        lab, planned, environment, since = self.lab, self.planned, self.environment, time.monotonic()
        forks = variation.may_fork and self.forks
        changed = variation.model_copy(update={"limit": limit, "may_fork": forks, "beside": self.beside})
        order = lab.start(planned, environment, changed)

        def ended() -> Observation:
            came = None
            try:
                came = lab.ended(order)
            finally:
                if came is None or (came.end is None and (came.environment is None or came.environment.is_usable)):
                    name = f"{planned.name}  {environment.label}"
                    self.cut_off = lab.lookout.cut_off(name, since)
                    self.tell(f"{name} was stopped: {self.cut_off}")
            if came.environment is not None and not came.environment.is_usable:
                why = came.environment.reason or came.environment.outcome
                raise PreventedError(f"{environment.label} cannot be used: {why}", hint=GOES_ON)
            if came.end is None:
                raise KeyboardInterrupt
            if not came.end.records:
                raise PreventedError(f"{planned.name} in {environment.label}: {came.end.problem}", hint=GOES_ON)
            (record,) = came.end.records
            stderr, command = lab.home / record.attempt.stderr, planned.scenario.command
            session = read_session(stderr.parent) if command else None
            told = session.traceback_of(command.test) if session and command else ""
            return Observation(record=record, stderr=text_of(stderr) + told, notes=came.end.notes)

        return ended

    def workers(self, count: int) -> WorkerPool:
        """Return where so many runs may be made at once; an interrupt there stops them all."""
        return WorkerPool(count, self.lab.interrupt)
