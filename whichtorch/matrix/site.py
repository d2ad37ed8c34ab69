"""The machine that a command is given on, as a place where cells run: the attempts that each of them needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.environments.configs import cell_environ, recorded
from whichtorch.environments.machine import check_hardware
from whichtorch.failures.deadline import Decider
from whichtorch.failures.patience import Patience
from whichtorch.matrix.cached_files import WrittenCaches
from whichtorch.matrix.judgement import (
    attempts_needed,
    counting,
    counts,
    may_fork,
    needs_look,
    unconfirmed,
    wants_observation,
)
from whichtorch.matrix.native_modules import NativeModules
from whichtorch.matrix.signals import running_lines
from whichtorch.matrix.variation import AttemptRequest, Variation
from whichtorch.matrix.work import Batch, BatchResult, CellEnd, Done, Site, Worker, fork_level
from whichtorch.model import Attempt, Environment, Record, Request, Role, SharedProcess
from whichtorch.model.events import AttemptEnded, AttemptStarted, Emit, EnvironmentStage
from whichtorch.process.evidence.headway import shortest_pause
from whichtorch.process.executor import Executor, ForkingExecutor, LocalExecutor, default_jobs, load_slowdown
from whichtorch.process.temporary_folders import temporary_folder
from whichtorch.records.known_records import Records, identity

if TYPE_CHECKING:
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.environments.provider import Environments
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.process.supervision import Supervised
    from whichtorch.records.store import RunStore

SERVERS_A_JOB = 2  # a job alternates between cells that need torch alone and cells that need its compiler
DOUBTED = "its forked attempt did not show the expected conditions"
INSTALLS_AT_ONCE = 2  # one unpacks while another downloads; more only fight for the disk


@dataclass(frozen=True, slots=True)
class ReadyCell:
    """A cell that is run now."""

    position: int
    planned: PlannedCell
    environment: Environment
    cancelled: threading.Event
    fork_level: str = ""  # of imports, that its first attempt may find made; "": all attempts are cold
    shared: SharedProcess | None = None  # of a test of a command: how it ran after others


@dataclass
class LocalSite(Site):
    """The machine it runs on: `jobs` cells at once, and `waiting` more of those that are expected to hang."""

    executor: Executor
    jobs: int = 1
    waiting: int = 0
    forking: Executor | None = None  # runs the attempts that may fork; None: all of them are cold
    caches: Path | None = None  # of compilers, for forked trials, which share them
    _native: NativeModules = field(init=False)
    _written: WrittenCaches = field(init=False)

    def __post_init__(self) -> None:
        self._native = NativeModules(self.environments.home, self.executor, self._stage)
        self._written = WrittenCaches(self.environments, self._stage)

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

    def check(self, _request: Request) -> None:
        """Do nothing: what cannot be made here is seen when it is tried."""

    def workers(self) -> tuple[Worker]:
        """Return this machine."""
        return (Worker(slots=self.jobs, hang_slots=self.waiting, install_slots=INSTALLS_AT_ONCE),)

    def start(self, batch: Batch, _worker: Worker, done: Done) -> None:
        """Begin a batch in a thread of its own."""

        def work() -> None:
            try:
                result = self.run(batch)
            except BaseException as error:  # noqa: BLE001  raised again by the scheduler
                done(partial(_raise, error))
            else:
                done(lambda: result)

        threading.Thread(target=work, name=batch.id, daemon=True).start()

    def run(self, batch: Batch) -> BatchResult:
        """Run a batch to its end, or until it is cancelled.

        If it came without its environment, the caller must release that.
        """
        environment = batch.environment
        if environment is None:
            stage = partial(self._stage, batch.request.label)
            environment = self.environments.acquire(batch.request, batch.cancelled, stage)
            if batch.cancelled.is_set():
                if environment.is_usable:
                    self.environments.release(batch.request)
                return BatchResult()
        ends: list[CellEnd] = []
        for position, planned in batch.cells.items() if environment.is_usable else ():
            level = fork_level(planned, batch.fork_levels) if batch.fork_levels else ""
            ready = ReadyCell(position, planned, environment, batch.cancelled, fork_level=level)
            end = self._run(ready, batch.trial)
            if end is None:
                break
            ends.append(end)
        return BatchResult(environment=environment, ends=ends)

    def _stage(self, label: str, stage: str) -> None:
        self.emit(EnvironmentStage(label=label, stage=stage))

    def _run(self, ready: ReadyCell, trial: Variation | None) -> CellEnd | None:
        if trial is not None:
            from whichtorch.matrix.trial import run_trial  # here: as for `attempt`

            return run_trial(trial, ready, self)
        command = ready.planned.scenario.command
        if command is None or command.test:
            return self.run_cell(ready)
        from whichtorch.matrix.command_cell import run_command_cell  # here: as for `attempt`

        return run_command_cell(self, ready)

    def run_cell(self, ready: ReadyCell, made: Sequence[Record] = ()) -> CellEnd | None:
        """Make the attempts that are missing beside those `made`, and return the cell's end; None if interrupted."""
        planned, environment = ready.planned, ready.environment
        on_record = self.records.of(planned.key(environment))
        known = counting(planned, on_record, environment)
        just_made = set(map(identity, made))
        known = [record for record in known if identity(record) not in just_made]
        judging = [record for record in known if record.attempt.role is Role.JUDGE]
        observing = [record for record in known if record.attempt.role is Role.OBSERVE]
        uncounted = [] if judging else unconfirmed(planned, on_record, environment)
        reused = len(judging)
        judging += made
        module = self._native.get(planned, environment, ready.cancelled)
        if module is None:
            return None
        while not module.problem and attempts_needed(planned, judging[:reused], judging[reused:]):
            if judging and self._had_longer_look(planned, judging[-1].attempt):
                break
            forks = not judging and not uncounted and may_fork(planned, environment, on_record)
            if not on_record and self.records.has_hung(planned.scenario, planned.variant):
                forks = False  # it may well hang here, too, and a forked hang is no answer
            level = ready.fork_level if forks else ""
            record = self._next_record(ready, judging, uncounted, module.path, level)
            if record is None:
                return None
            (judging if counts(planned, record, environment, on_record) else uncounted).append(record)
        is_doubted = False
        while not module.problem and wants_observation(planned, [*judging, *observing]):
            forks = not (is_doubted or uncounted) and may_fork(planned, environment, on_record)
            order = AttemptRequest(
                limit=planned.limits.timeout,  # it is slower than a plain one
                role=Role.OBSERVE,
                native=module.path,
                fork_level=ready.fork_level if forks else "",
                rerun_because=DOUBTED if is_doubted else "",
                cold_because=DOUBTED if is_doubted else "",
            )
            record = self._attempt(ready, order)
            if record is None:
                return None
            is_doubted = not counts(planned, record, environment, on_record)
            observing += [] if is_doubted else [record]
        records = (*judging, *observing)
        return CellEnd(position=ready.position, records=records, reused=reused, problem=module.problem)

    def _next_record(
        self, ready: ReadyCell, judging: Sequence[Record], uncounted: Sequence[Record], native: Path | None, level: str
    ) -> Record | None:
        """Return the next record of a cell: of a plain attempt, or of a longer one if the last was slow.

        Only the first one may be forked, at a `level` of imports. What a process forks has one seed for hashes, and the
        same addresses.
        """
        planned, last = ready.planned, judging[-1].attempt if judging else None
        environment = ready.environment
        has_hung_at = partial(self.records.has_hung_at, planned.scenario, planned.variant)
        expects_hang = planned.expects_hang(environment)

        def hung_before(signature: str) -> bool:
            return expects_hang or has_hung_at(signature)

        if last is None or not needs_look(planned, last) or planned.options.provisional:
            patience = self._patience(planned)
            limit = patience.first_limit(is_known=expects_hang or has_hung_at(), slowdown=load_slowdown())
            because = f"its forked attempt ended in {uncounted[-1].attempt.outcome.word}" if uncounted else ""
            order = AttemptRequest(
                limit=limit,
                native=native,
                is_brief=limit < patience.due,
                hung_before=hung_before,
                rerun_because=because,
                fork_level=level,
                idle_limit=shortest_pause(limit) if level else None,  # a hang is to be confirmed cold anyway
                cold_because=because,
            )
            return self._attempt(ready, order)
        why = f"slow: {last.note.partition(';')[0]}" if last.note else "it was slow"
        whole = planned.limits.timeout
        if not planned.looks_longer:
            order = AttemptRequest(
                limit=whole, is_again=True, hung_before=hung_before, rerun_because=why, native=native
            )
            return self._attempt(ready, order)
        goal, limit = self._patience(planned).longer_look(last)
        decided = self.records.decisive(environment.id, planned.scenario, planned.variant, goal, last)
        order = AttemptRequest(limit=limit, goal=goal, idle_limit=last.limit, rerun_because=why, native=native)
        return decided or self._attempt(ready, order)

    def _had_longer_look(self, planned: PlannedCell, last: Attempt) -> bool:
        """Return whether a longer look, in any environment, has already left the test slow at this place.

        One of an earlier run on a crowded machine does not count: the machine may have cores now.
        """
        if not (needs_look(planned, last) and planned.looks_longer):
            return False
        looks = (record.attempt for record in self.records.of_test(planned.scenario.source_hash, planned.variant))
        counting = (
            look
            for look in looks
            if self.store.has(look) or not (planned.options.fresh or look.evidence.decided == Decider.CROWDED)
        )
        return Patience(timeout=planned.limits.timeout).had_longer_look(last, counting)

    def attempt(self, planned: PlannedCell, environment: Environment, order: AttemptRequest) -> Record | None:
        """Make an attempt, and once more if it was an error; None where it was interrupted."""
        from whichtorch.matrix.attempt import once_more  # here: known cells need nothing of what it imports
        from whichtorch.matrix.cache_chain import run_chain

        executor = self.forking if self.forking and order.fork_level else self.executor
        home = self.environments.home
        return once_more(lambda: run_chain(planned, environment, order, executor, home, self.store, self._written))

    def _attempt(self, ready: ReadyCell, order: AttemptRequest) -> Record | None:
        """Make one attempt of a cell, tell of it, and store its record; None where it was interrupted."""
        planned, environment = ready.planned, ready.environment
        name, label = planned.name, environment.label
        why = order.rerun_because
        limit = order.limit * planned.runs
        self.emit(AttemptStarted(environment=label, cell=name, limit=limit, goal=order.goal, why=why))
        order = replace(order, cancelled=ready.cancelled, shared=ready.shared)
        record = self.attempt(planned, environment, order)
        if record is not None:
            self.keep(record)
            self.emit(AttemptEnded(environment=label, cell=name, attempt=record.attempt))
        return record

    def close(self) -> None:
        """Remove what was kept for cells of this step."""
        self._written.remove()

    def keep(self, record: Record) -> None:
        """Store the record of an attempt that was made here."""
        self.store.add_record(record)
        self.records.add(record)

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


def _raise(error: BaseException) -> BatchResult:
    raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """The machine that a command is given on: `jobs` cells at once, and `waiting` more that are expected to hang."""

    environments: Environments
    jobs: int = 1
    waiting: int = 0
    expected_size: Callable[[Sequence[Request]], int] = lambda _: 0  # bytes, of installs

    @classmethod
    def of(cls, cache: EnvironmentCache, jobs: int | None = None) -> ThisMachine:
        """Return it with so many jobs, by default as many as fit it, and as many more that wait."""
        fitting = jobs or default_jobs()
        return cls(environments=cache, jobs=fitting, waiting=0 if jobs else fitting, expected_size=cache.expected_size)

    @property
    def slots(self) -> int:
        """How many cells run at once."""
        return self.jobs

    def check(self, requests: Sequence[Request]) -> None:
        """Raise PreventedError for a kind of hardware that this machine is not of."""
        check_hardware(requests)

    def install_cost(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return about how many bytes and seconds installs take, with the usual size and duration."""
        distinct = {request.install_key: request for request in requests}
        missing = [request for request in distinct.values() if not self.environments.is_installed(request)]
        if not missing:
            return 0, 0.0
        seconds = self.environments.typical_install() * len(missing) / min(INSTALLS_AT_ONCE, len(missing))
        return self.expected_size(missing), seconds

    @contextmanager
    def site(self, records: Records, store: RunStore, emit: Emit) -> Iterator[LocalSite]:
        """Open it as a place where cells run."""
        site = LocalSite(self.environments, records, store, emit, LocalExecutor(), self.jobs, self.waiting)
        with ForkingExecutor(SERVERS_A_JOB * self.jobs) as site.forking, temporary_folder() as site.caches:
            try:
                yield site
            finally:
                site.close()
