"""The lab: what a command runs its scripts in, on this machine or on a cluster, with a stored run for what comes of it.

A matrix gives it cells, which get the attempts that they need (`run`): it takes what records answer, hands the rest to
a site, keeps and tells what comes of every cell. A search gives it trials, each of which is one run of a script that is
changed in some way (`start`).
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import text_of
from whichtorch.base.errors import GOES_ON, FailFastError, PreventedError, UsageError, why_stopped
from whichtorch.base.grouping import counted
from whichtorch.matrix.cell_scheduler import CellScheduler
from whichtorch.matrix.judgement import counting, is_settled, judge_cell
from whichtorch.matrix.planning import PlannedCell, PlannedShare
from whichtorch.matrix.signals import Lookout, answering
from whichtorch.matrix.test_session import read_session
from whichtorch.matrix.variation import PLAIN, Observation, Variation
from whichtorch.matrix.work import CellEnd, EnvironmentWork, Machines, Site
from whichtorch.model import NO_COMMAND, NOT_TAKEN, Cell, Environment, Outcome, Record, Request, judging_records
from whichtorch.model.events import CellDone, EnvironmentReady, Interrupted, TestsFound
from whichtorch.records.store import RunStore, clear_left_behind, new_run
from whichtorch.search.runs_oracle import WorkerPool, await_all
from whichtorch.suite.companions import companions_of

if TYPE_CHECKING:
    from concurrent.futures import Future

    from whichtorch.environments.provider import Environments
    from whichtorch.model.events import Event, Show
    from whichtorch.records.line_index import Records


class MatrixRun:
    """One run of planned cells. Call `run` once, then read `environments` and `cells`."""

    def __init__(self, planned: Sequence[PlannedCell], scheduler: CellScheduler, keep_cells: bool = True) -> None:
        """Without `keep_cells` there is no `cells`: the store has them, and millions do not fit in memory."""
        self._planned, self._scheduler, self._site = planned, scheduler, scheduler.site
        # by the position of their first cell; on another machine of a cluster the same request may come out otherwise
        self._environments: dict[tuple[int, str], Environment] = {}
        # a command has several, one for each of its tests
        self._cells: dict[int, list[Cell]] | None = {} if keep_cells else None
        self._work: list[EnvironmentWork] = []  # what records do not answer
        self._begun: list[Future[None]] = []  # the same, as the scheduler has it
        self._failed = ""  # the first failure, with --fail-fast
        self.interrupt: KeyboardInterrupt | None = None

    @property
    def environments(self) -> tuple[Environment, ...]:
        """The environments in the order of the plan."""
        return tuple(self._environments[position] for position in sorted(self._environments))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that are done, in the order of the plan."""
        assert self._cells is not None
        return tuple(cell for position in sorted(self._cells) for cell in self._cells[position])

    def run(self) -> None:
        """Run to the end. An interrupt stops what runs and keeps what is done; a second one is raised."""
        try:
            self.begin()
            self._wait()
        except KeyboardInterrupt as interrupt:
            self.interrupt = interrupt
            self._site.emit(Interrupted(why=why_stopped(interrupt)))
            self.cancel()
            self._wait()

    def begin(self) -> Sequence[Future[None]]:
        """End what records answer, and have the rest run; return what ends with each environment of it."""
        self._work = self._unanswered()
        self._check_failed()
        for work in self._work:
            self._begun.append(self._scheduler.add(work, self))
        return self._begun

    def cancel(self) -> None:
        """Have it end soon; what is done is kept. May be called in another thread."""
        for work in self._work:
            self._scheduler.cancel(work)

    def _wait(self) -> None:
        await_all(self._begun, self._check_failed)
        for ended in self._begun:
            ended.result()

    def _check_failed(self) -> None:
        """Interrupt the run, in the main thread, where a failure ends it."""
        if self._failed and self.interrupt is None:
            raise FailFastError(f"{self._failed} failed, and --fail-fast ends the run")

    def _unanswered(self) -> list[EnvironmentWork]:
        """End the cells that records answer without an install; return the others by their environments."""
        work: dict[tuple[str, ...], EnvironmentWork] = {}
        shares: dict[tuple[str, ...], PlannedShare] = {}
        known: dict[tuple[str, ...], Environment | None] = {}
        answered = with_answers(self._planned, self._site.environments, self._site.records)
        for position, (key, cell, environment, answer) in enumerate(answered):
            self._site.store.add_scenario(cell.scenario)
            known[key] = environment
            if key not in work:
                shares[key] = PlannedShare(self._planned)
                work[key] = EnvironmentWork(request=cell.request, first=position, cells=shares[key])
            if environment and answer:
                self.ended(environment, answer)
            else:
                shares[key].positions.append(position)
        for asked, mine in work.items():
            if (environment := known[asked]) and not mine.cells:
                self._add_environment(environment, mine, to_run=0)
        return [each for each in work.values() if each.cells]

    def _add_environment(self, environment: Environment, work: EnvironmentWork, to_run: int) -> None:
        environment = self._site.with_variables(work.request, environment)
        self._environments[work.first, environment.id] = environment
        self._site.store.add_environment(environment)
        self._site.emit(EnvironmentReady(environment=environment, cells=to_run))

    # what the scheduler tells, from its thread

    def acquired(self, work: EnvironmentWork, environment: Environment) -> Mapping[int, PlannedCell]:
        """Keep an environment; end its cells that records answer, or all of them if it cannot be used."""
        rest = PlannedShare(self._planned)
        for position, cell in work.cells.items() if environment.is_usable else ():
            if answer := _answer(position, cell, environment, self._site.records):
                self.ended(environment, answer)
            else:
                rest.positions.append(position)
        self._add_environment(environment, work, to_run=len(rest))
        if not environment.is_usable:
            for position in work.cells:
                self.ended(environment, CellEnd(position=position))
        return rest

    def ended(self, environment: Environment, end: CellEnd) -> None:
        """Judge, store and tell a cell; of a command that has tests, the cell of each.

        A command that is red, or was prevented, has its own cell beside them.
        """
        planned = self._planned[end.position]
        own = judge_cell(planned, environment, end.records, reused=end.reused, problem=end.problem)
        is_shown = own.is_red or own.outcome.is_prevented or not end.tests
        cells = [(planned, own, end.records)] if is_shown else []
        for id_, records in end.tests.items():
            test = planned.of_test(id_)
            reused = min(end.reused, len(judging_records(records)))
            cells.append((test, judge_cell(test, environment, records, reused=reused), records))
        if end.tests:
            self._site.emit(TestsFound(environment=environment.label, cells=len(cells)))
        for test, cell, records in cells:
            if self._cells is not None:
                self._cells.setdefault(end.position, []).append(cell)
            self._site.store.add_scenario(test.scenario)
            self._site.store.add_cell(cell, [record.key for record in records], end.position)
            self._site.emit(CellDone(environment=environment, cell=cell))
            if planned.options.fail_fast and cell.has_failed:
                self._failed = self._failed or f"{cell.name} in {environment.label}"


def with_answers(
    planned: Sequence[PlannedCell], environments: Environments, records: Records
) -> Iterator[tuple[tuple[str, ...], PlannedCell, Environment | None, CellEnd | None]]:
    """Yield the key of each cell's request, the cell, its environment if known, and its end if records know that."""
    known: dict[tuple[str, ...], Environment | None] = {}
    request: Request | None = None
    key: tuple[str, ...] = ()
    for position, cell in enumerate(planned):
        if cell.request is not request:  # neighbors in a plan share theirs
            request, key = cell.request, cell.request.key
            if key not in known:
                known[key] = environments.known(request)
        environment = known[key]
        yield key, cell, environment, _answer(position, cell, environment, records) if environment else None


def raise_if_impossible(cells: Iterable[Cell]) -> None:
    """Raise UsageError where no environment can have what the user asks for: the packages, or the command."""
    asked = list(cells)
    ran = [cell for cell in asked if cell.outcome not in {Outcome.UNBUILDABLE, Outcome.BROKEN}]
    if asked and all(cell.is_unresolvable for cell in asked):
        told, hint = asked, "change them, or name other releases with --torch"
    elif ran and all(cell.lacks_command for cell in ran):
        program = (ran[0].reason or "").partition(f": {NO_COMMAND}")[0]
        brings = f"it is a file: -- python {program}" if Path(program).is_file() else f"--with {program}"
        told, hint = ran, "" if NOT_TAKEN in program else brings
    else:
        return
    others = len({cell.environment for cell in told}) - 1
    more = f" (likewise in {counted(others, 'other environment')})" if others else ""
    raise UsageError(f"{told[0].reason}{more}", hint=hint)


def _answer(position: int, cell: PlannedCell, environment: Environment, records: Records) -> CellEnd | None:
    """Return the end of a cell that records answer, None where it must run."""
    known = tuple(counting(cell, records.of(cell.key(environment)), environment))
    if any(record.attempt.evidence.tests for record in known):
        tests = known_tests(cell, environment, records, known)
    else:
        tests = {} if known and is_settled(cell, known) else None
    if tests is None:
        return None
    return CellEnd(position=position, records=known, reused=len(judging_records(known)), tests=tests)


def known_tests(
    planned: PlannedCell, environment: Environment, records: Records, own: Sequence[Record]
) -> dict[str, tuple[Record, ...]] | None:
    """Return by id the records that answer the tests of a command; None where one of them must run.

    `own` are the records of the command itself.
    """
    ids = next((record.attempt.evidence.tests for record in reversed(own)), None)
    found: dict[str, tuple[Record, ...]] = {}
    for id_ in ids or ():
        test = planned.of_test(id_)
        found[id_] = tuple(counting(test, records.of(test.key(environment)), environment))
        if not planned.scenario.asks_for(id_):
            del found[id_]
        elif not is_settled(test, found[id_]):
            return None
    return found


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
