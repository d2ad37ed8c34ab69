"""Somewhere that runs the cells of environments: the interface, and this machine as its first implementation.

A run hands whole environments with their cells to a site and takes what comes of them, so that another machine can
be one, too. The module is longer than 300 lines because the interface and its only implementation are read together.
"""

from __future__ import annotations

import heapq
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from whichtorch.matrix.diagnosis.patience import Patience
from whichtorch.matrix.environments.configs import cell_environ, recorded
from whichtorch.matrix.environments.provider import Environments
from whichtorch.matrix.events import AttemptEnded, AttemptStarted, Emit, EnvironmentStage
from whichtorch.matrix.model import Environment, Record, Request, Role
from whichtorch.matrix.process.executor import load_slowdown
from whichtorch.matrix.run.attempt import AttemptOrder, run_attempt
from whichtorch.matrix.run.native_modules import NativeModule, NativeModules
from whichtorch.matrix.run.signals import running_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from whichtorch.matrix.model import Attempt
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.process.executor import Executor
    from whichtorch.matrix.process.supervision import Supervised
    from whichtorch.matrix.records.known_records import Records
    from whichtorch.matrix.records.store import RunStore

INSTALLS_AT_ONCE = 2  # one unpacks while another downloads; more only fight for the disk
SIGNAL_CHECK = 0.5  # seconds: a signal that another thread took does not wake the main one


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentWork:
    """The cells of one environment that are to be run, by their positions in the plan."""

    request: Request
    first: int  # position of the first of all its cells
    cells: Mapping[int, PlannedCell]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellEnd:
    """What a cell rests on when nothing is left to run of it."""

    position: int  # in the plan
    planned: PlannedCell
    environment: Environment
    records: Sequence[Record]
    reused: int = 0  # of the records that judge: those that an earlier run made
    problem: str = ""  # what kept it from being run


class CellSink(Protocol):
    """Takes what comes of cells, from any thread."""

    def acquired(self, work: EnvironmentWork, environment: Environment) -> Mapping[int, PlannedCell]:
        """Take in that an environment is there, or cannot be; return those of its cells that are to be run."""

    def ended(self, end: CellEnd) -> None:
        """Take in a cell of which nothing is left to run."""

    def interrupted(self) -> None:
        """Take in that the user wants to stop: nothing new is started."""


class Site(Protocol):
    """Somewhere that runs the cells of environments. `run` is called once."""

    records: Records  # of earlier runs; those of attempts made here are added
    store: RunStore

    @property
    def environments(self) -> Environments:
        """What is known of environments."""

    @property
    def emit(self) -> Emit:
        """Where it tells what happens."""

    def running_lines(self) -> Sequence[str]:
        """Return for each attempt that runs now how long it has run, and where it is."""

    def with_variables(self, request: Request, environment: Environment) -> Environment:
        """Return an environment with those variables that its cells run with and that are recorded."""

    def run(self, work: Sequence[EnvironmentWork], sink: CellSink) -> None:
        """Run cells to their end. An interrupt stops what runs and keeps what is done; a second one is raised."""

    def cancel(self) -> None:
        """Have `run`, in another thread, stop what runs and return; what is done is kept."""


class DistantEnvironments(Environments, Protocol):
    """Environments of other machines, made there."""

    def expected_size(self, requests: Sequence[Request]) -> int:
        """Return about how many bytes installing these takes on this machine."""

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UsageError for what other machines cannot make, PreventedError for what none of them can run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherMachines:
    """Other machines, as a run uses them instead of this one."""

    environments: DistantEnvironments
    make_site: Callable[[Records, RunStore, Emit], Site]  # for each step of a run
    slots: int  # cells at once


@dataclass(slots=True, kw_only=True)
class _Tenancy:
    """An environment that is held until the last of its cells has ended."""

    request: Request
    environment: Environment
    left: int


@dataclass(order=True, slots=True)
class _Ready:
    """A cell whose environment is there, in the order in which workers take them."""

    expects_hang: bool  # last: by then passes elsewhere have shortened their limit
    shortness: float  # the longest first, so that none is left over at the end
    position: int
    planned: PlannedCell = field(compare=False)
    tenancy: _Tenancy = field(compare=False)


@dataclass
class LocalSite:
    """The machine it runs on: `jobs` attempts at once, and `waiting` more of those that are expected to hang.

    Most of these wait rather than work, so they leave the cores to others.
    """

    environments: Environments
    executor: Executor
    records: Records
    store: RunStore
    emit: Emit
    jobs: int = 1
    waiting: int = 0
    forking: Executor | None = None  # runs the attempts that may fork; None: all of them are cold
    _changed: threading.Condition = field(default_factory=threading.Condition)  # guards all below
    _ready: list[_Ready] = field(default_factory=list)
    _preparing: int = 0  # environments that may still bring cells
    _busy: int = 0  # workers that run a cell
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _failure: BaseException | None = None

    @property
    def running(self) -> tuple[Supervised, ...]:
        """The attempts that run now."""
        return (*self.executor.running, *(self.forking.running if self.forking else ()))

    def running_lines(self) -> list[str]:
        """Return for each attempt that runs now how long it has run, and where it is."""
        return running_lines(self.running)

    def with_variables(self, request: Request, environment: Environment) -> Environment:
        """Return an environment with those variables that its cells run with and that are recorded."""
        if not environment.is_usable:
            return environment
        variables = recorded(cell_environ(request, environment, self.environments.home), request.config)
        return environment.model_copy(update={"variables": variables})

    def run(self, work: Sequence[EnvironmentWork], sink: CellSink) -> None:
        """Run cells to their end. An interrupt stops what runs and keeps what is done; a second one is raised."""
        self._preparing = len(work)
        installers = ThreadPoolExecutor(INSTALLS_AT_ONCE, thread_name_prefix="install")
        workers = [
            threading.Thread(target=self._work, args=(only_hangs, sink), daemon=True)
            for only_hangs in [False] * self.jobs + [True] * self.waiting
        ]
        try:
            for environment_work in work:
                installers.submit(self._prepare, environment_work, sink)
            for worker in workers:
                worker.start()
            with self._changed:
                while not self._is_over:
                    self._changed.wait(SIGNAL_CHECK)
        except KeyboardInterrupt:
            sink.interrupted()
        finally:
            self.cancel()
            installers.shutdown(wait=True, cancel_futures=True)
            for worker in workers:
                worker.join()
        if self._failure is not None:
            raise self._failure

    def cancel(self) -> None:
        """Have `run`, in another thread, stop what runs and return; what is done is kept."""
        self._cancelled.set()
        self.executor.interrupt()
        if self.forking is not None:
            self.forking.interrupt()
        with self._changed:
            self._changed.notify_all()

    @cached_property
    def _native(self) -> NativeModules:
        return NativeModules(self.environments.home, self.executor, self._stage)

    @property
    def _is_over(self) -> bool:
        idle = not (self._preparing or self._ready or self._busy)
        return idle or self._cancelled.is_set() or self._failure is not None

    def _stage(self, label: str, stage: str) -> None:
        self.emit(EnvironmentStage(label=label, stage=stage))

    def _fail(self, error: BaseException) -> None:
        """End the run: `run` raises the first error of any thread."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    # environments

    def _prepare(self, work: EnvironmentWork, sink: CellSink) -> None:
        try:
            if not self._cancelled.is_set():
                self._acquire(work, sink)
        except BaseException as error:  # noqa: BLE001  raised again by `run`
            self._fail(error)
        finally:
            with self._changed:
                self._preparing -= 1
                self._changed.notify_all()

    def _acquire(self, work: EnvironmentWork, sink: CellSink) -> None:
        request = work.request
        environment = self.environments.acquire(request, self._cancelled, partial(self._stage, request.label))
        if self._cancelled.is_set():
            self.environments.release(request)
            return
        cells = sink.acquired(work, environment)
        if not cells:
            self.environments.release(request)
            return
        tenancy = _Tenancy(request=request, environment=environment, left=len(cells))
        with self._changed:
            for position, planned in cells.items():
                # a forked cell is short: those of an environment come together, and share what it has imported
                longest = 0.0 if planned.may_fork(environment) else -planned.scenario.timeout
                order = planned.expects_hang(environment), longest, position
                heapq.heappush(self._ready, _Ready(*order, planned, tenancy))
            self._changed.notify_all()

    # cells

    def _work(self, only_hangs: bool, sink: CellSink) -> None:
        while (ready := self._next(only_hangs)) is not None:
            try:
                self._run_cell(ready, sink)
            except BaseException as error:  # noqa: BLE001  raised again by `run`
                self._fail(error)
            finally:
                with self._changed:
                    self._busy -= 1
                    self._changed.notify_all()

    def _next(self, only_hangs: bool) -> _Ready | None:
        """Return the next cell to run; None when there will be none.

        Expected hangs are the last in the queue: who takes only these begins when nothing else is left in it.
        """
        with self._changed:
            while not self._is_over:
                if self._ready and (not only_hangs or self._ready[0].expects_hang):
                    self._changed.notify_all()  # what is first now may be for others
                    self._busy += 1
                    return heapq.heappop(self._ready)
                self._changed.wait()
            return None

    def _run_cell(self, ready: _Ready, sink: CellSink) -> None:
        """Make the attempts that are still missing, then end the cell; an interrupt leaves it undone."""
        planned, tenancy = ready.planned, ready.tenancy
        known = planned.counting(self.records.of(planned.key(tenancy.environment)), tenancy.environment)
        judging = [record for record in known if record.attempt.role is Role.JUDGE]
        observing = [record for record in known if record.attempt.role is Role.OBSERVE]
        uncounted: list[Record] = []  # of forked attempts that a cold one has to confirm
        reused = len(judging)
        module = self._native_module(planned, tenancy.environment)
        if module is None:
            return
        while not module.problem and planned.wants_attempt(judging[:reused], judging[reused:]):
            if judging and self._had_longer_look(planned, judging[-1].attempt):
                break
            record = self._next_record(ready, judging, uncounted, module.path)
            if record is None:
                return
            (judging if planned.counts(record, tenancy.environment) else uncounted).append(record)
        if not module.problem and planned.wants_observation([*judging, *observing]):
            order = AttemptOrder(limit=planned.limits.timeout, role=Role.OBSERVE, native=module.path)
            record = self._attempt(ready, order)  # slower than a plain one, so it gets all of the timeout
            if record is None:
                return
            observing.append(record)
        sink.ended(
            CellEnd(
                position=ready.position,
                planned=planned,
                environment=tenancy.environment,
                records=[*judging, *observing],
                reused=reused,
                problem=module.problem,
            )
        )
        with self._changed:
            tenancy.left -= 1
            is_last = tenancy.left == 0
        if is_last:
            self.environments.release(tenancy.request)

    def _native_module(self, planned: PlannedCell, environment: Environment) -> NativeModule | None:
        """Return the module of a cell's native sources, built if need be; None where that was interrupted."""
        if not planned.scenario.native:
            return NativeModule()
        with self._changed:  # two workers must not make two of them
            modules = self._native
        return modules.get(planned, environment)

    def _next_record(
        self, ready: _Ready, judging: Sequence[Record], uncounted: Sequence[Record], native: Path | None
    ) -> Record | None:
        """Return a record more of a cell: of a plain attempt, or of a longer one where the last was slow."""
        planned, last = ready.planned, judging[-1].attempt if judging else None
        environment = ready.tenancy.environment
        has_hung_at = partial(self.records.has_hung_at, planned.scenario, planned.variant)
        expects_hang = planned.expects_hang(environment)

        def hung_before(signature: str) -> bool:
            return expects_hang or has_hung_at(signature)

        if last is None or not planned.needs_look(last) or planned.options.provisional:
            patience = self._patience(planned)
            limit = patience.first_limit(is_known=expects_hang or has_hung_at(), slowdown=load_slowdown())
            because = f"its forked attempt ended in {uncounted[-1].attempt.outcome.word}" if uncounted else ""
            order = AttemptOrder(
                limit=limit,
                native=native,
                is_brief=limit < patience.due,
                hung_before=hung_before,
                rerun_because=because,
                may_fork=planned.may_fork(environment) and not uncounted,
                cold_because=because,
            )
            return self._attempt(ready, order)
        why = f"slow: {last.note.partition(';')[0]}" if last.note else "it was slow"
        whole = planned.limits.timeout
        if not planned.looks_longer:
            order = AttemptOrder(limit=whole, hung_before=hung_before, rerun_because=why, native=native)
            return self._attempt(ready, order)
        goal, limit = self._patience(planned).longer_look(last)
        decided = self.records.decisive(environment.id, planned.scenario, planned.variant, goal)
        order = AttemptOrder(limit=limit, goal=goal, idle_limit=last.limit, rerun_because=why, native=native)
        return decided or self._attempt(ready, order)

    def _had_longer_look(self, planned: PlannedCell, last: Attempt) -> bool:
        """Return whether a longer look, in any environment, has already left the test slow at this place."""
        if not (planned.needs_look(last) and planned.looks_longer):
            return False
        looks = (record.attempt for record in self.records.of_test(planned.scenario.source_hash, planned.variant))
        return Patience(timeout=planned.limits.timeout).had_longer_look(last, looks)

    def _attempt(self, ready: _Ready, order: AttemptOrder) -> Record | None:
        """Make one attempt and store its record; None where it was interrupted."""
        planned, environment = ready.planned, ready.tenancy.environment
        name, label = planned.name, environment.label
        why = order.rerun_because
        self.emit(AttemptStarted(environment=label, cell=name, limit=order.limit, goal=order.goal, why=why))
        executor = self.forking if self.forking and order.may_fork else self.executor
        record = run_attempt(planned, environment, order, executor, self.environments.home, self.store)
        if record is not None:
            self.store.add_record(record)
            self.records.add(record)
            self.emit(AttemptEnded(environment=label, cell=name, attempt=record.attempt))
        return record

    def _patience(self, planned: PlannedCell) -> Patience:
        """Return how long a test may take, by what the records say of it."""
        test = planned.scenario, planned.variant, planned.request.hardware_name
        options = planned.options
        return Patience(
            timeout=planned.limits.timeout,
            looks_longer=planned.looks_longer,
            slowest_pass=self.records.slowest_pass(*test),
            longest_run=self.records.longest_run(*test),
            is_provisional=options.provisional,
            in_search=options.in_search,
            has_run_out=options.provisional and self.records.has_run_out(*test),
        )
