"""The pipeline: reuse what is known, get environments, run the rest, tell what happens."""

from __future__ import annotations

import heapq
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.environments.cache import cell_environ
from matrix.environments.environ import recorded
from matrix.events import AttemptEnded, AttemptStarted, CellDone, EnvironmentReady, EnvironmentStage, Interrupted
from matrix.model import Cell, Environment, Outcome, Record, Request, Role
from matrix.plan.planning import judging
from matrix.run.attempt import run_attempt
from matrix.run.native_modules import NativeBuilds

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matrix.environments.provider import Environments
    from matrix.events import Emit
    from matrix.plan.planning import PlannedCell
    from matrix.records.store import Records, RunStore
    from matrix.run.executor import LocalExecutor

INSTALLS_AT_ONCE = 2  # one unpacks while another downloads; more only fight for the disk
PASS_MARGIN = 10  # times the slowest pass elsewhere: further from a pass than a machine's mood
SHORTEST_LIMIT = 10.0  # seconds; below it a busy machine makes hangs of passes
SIGNAL_CHECK = 0.5  # seconds: a signal that another thread took does not wake the main one
SLOW_RERUN = 4  # times the limit, for what was still moving when the clock ended


@dataclass(slots=True, kw_only=True)
class _Group:
    """The cells of one environment: they hold it until the last of them is done."""

    request: Request
    planned: list[tuple[int, PlannedCell]]  # with their place in the plan
    left: int = 0
    held: bool = False


@dataclass(order=True, slots=True)
class _Ready:
    """A cell whose environment is there, in the order in which workers take them."""

    expects_hang: bool  # last: by then passes elsewhere have shortened their limit
    shortness: float  # the longest first, so that none is left over at the end
    place: int
    planned: PlannedCell = field(compare=False)
    environment: Environment = field(compare=False)
    group: _Group = field(compare=False)


class MatrixRun:
    """One run of planned cells. Call `run` once, then read `environments` and `cells`."""

    def __init__(
        self,
        planned: Sequence[PlannedCell],
        *,
        cache: Environments,
        executor: LocalExecutor,
        records: Records,
        store: RunStore,
        emit: Emit,
    ) -> None:
        self._cache, self._executor, self._records, self._store = cache, executor, records, store
        self._emit = emit
        self._native = NativeBuilds(
            cache.home, executor, lambda label, stage: emit(EnvironmentStage(label=label, stage=stage))
        )
        self._groups: dict[tuple[str, str], _Group] = {}
        for place, cell in enumerate(planned):
            store.add_scenario(cell.scenario)
            key = (cell.request.install_key, cell.request.config.name)
            group = self._groups.setdefault(key, _Group(request=cell.request, planned=[]))
            group.planned.append((place, cell))
            group.left += 1
        self._environments: list[tuple[int, Environment]] = []
        self._cells: list[tuple[int, Cell]] = []
        self._changed = threading.Condition()  # guards all below and all above
        self._ready: list[_Ready] = []
        self._undone = len(planned)
        self._cancelled = threading.Event()
        self._failure: BaseException | None = None
        self.interrupted = False

    @property
    def environments(self) -> tuple[Environment, ...]:
        """The environments in the order of the plan."""
        return tuple(environment for _, environment in sorted(self._environments, key=lambda pair: pair[0]))

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The cells that are done, in the order of the plan."""
        return tuple(cell for _, cell in sorted(self._cells, key=lambda pair: pair[0]))

    def run(self, jobs: int, waiting: int = 0) -> None:
        """Run to the end, `jobs` attempts at once, and `waiting` more of those that are expected to hang.

        Most of these wait rather than work, so they leave the cores to others.
        KeyboardInterrupt stops what runs and keeps what is done; a second one passes through.
        """
        installers = ThreadPoolExecutor(INSTALLS_AT_ONCE, thread_name_prefix="install")
        kinds = [False] * jobs + [True] * waiting
        workers = [threading.Thread(target=self._work, args=(only_hangs,), daemon=True) for only_hangs in kinds]
        try:
            for group in self._groups.values():
                installers.submit(self._guarded, self._prepare, group)
            for worker in workers:
                worker.start()
            with self._changed:
                while self._undone and not self._is_over():
                    self._changed.wait(SIGNAL_CHECK)
        except KeyboardInterrupt:
            self.interrupted = True
            self._emit(Interrupted())
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
        self._executor.interrupt()
        with self._changed:
            self._changed.notify_all()

    def _guarded(self, action: object, *arguments: object) -> None:
        """Call `action` in a thread; its error ends the run, and is raised there."""
        try:
            action(*arguments)  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()

    # environments

    def _prepare(self, group: _Group) -> None:
        """Settle what is known of an environment's cells, get it if need be, and queue the rest."""
        known = self._cache.known(group.request)
        rest = group.planned
        if known is not None:
            rest = self._settle_known(known, group, rest)
            if not rest:
                self._add_environment(known, group, 0)
        if not rest or self._cancelled.is_set():
            return
        label = group.request.label
        environment = self._cache.acquire(
            group.request, self._cancelled, lambda stage: self._emit(EnvironmentStage(label=label, stage=stage))
        )
        if self._cancelled.is_set():
            self._cache.release(group.request)
            return
        group.held = True
        if environment.is_usable and (known is None or known.id != environment.id):
            rest = self._settle_known(environment, group, rest)
        self._add_environment(environment, group, len(rest) if environment.is_usable else 0)
        if environment.is_usable:
            self._queue(environment, group, rest)
        else:
            for place, planned in rest:
                self._finish(place, planned, environment, group, [])
        self._release_if_done(group)

    def _add_environment(self, environment: Environment, group: _Group, cells: int) -> None:
        if environment.is_usable:
            env = cell_environ(group.request, environment, self._cache.home)
            environment = environment.model_copy(update={"variables": recorded(env, group.request.config)})
        with self._changed:
            self._environments.append((group.planned[0][0], environment))
            self._store.add_environment(environment)
        self._emit(EnvironmentReady(environment=environment, cells=cells))

    def _settle_known(
        self, environment: Environment, group: _Group, planned: list[tuple[int, PlannedCell]]
    ) -> list[tuple[int, PlannedCell]]:
        """Finish the cells that earlier runs have answered; return the others."""
        rest = []
        for place, cell in planned:
            known = self._known_records(cell, environment)
            if cell.is_settled(known):
                self._finish(place, cell, environment, group, known, reused=len(judging(known)))
            else:
                rest.append((place, cell))
        return rest

    def _known_records(self, planned: PlannedCell, environment: Environment) -> list[Record]:
        """Return what earlier runs have of a cell. Seen afresh or not, it dispatches what it was seen to."""
        known = self._records.of(planned.key(environment))
        return [one for one in known if one.attempt.role is Role.OBSERVE] if planned.options.fresh else known

    def _queue(self, environment: Environment, group: _Group, rest: list[tuple[int, PlannedCell]]) -> None:
        with self._changed:
            for place, planned in rest:
                hangs, shortness = planned.expects_hang(environment), -planned.scenario.timeout
                heapq.heappush(self._ready, _Ready(hangs, shortness, place, planned, environment, group))
            self._changed.notify_all()

    def _release_if_done(self, group: _Group) -> None:
        with self._changed:
            release = group.held and group.left == 0
            group.held = group.held and not release
        if release:
            self._cache.release(group.request)

    # cells

    def _work(self, only_hangs: bool) -> None:
        while (ready := self._next(only_hangs)) is not None:
            self._guarded(self._run_cell, ready)

    def _next(self, only_hangs: bool) -> _Ready | None:
        """Return the next cell to run; None when there will be none.

        Expected hangs are the last in the queue: who takes only these begins when nothing else is left in it.
        """
        with self._changed:
            while self._undone and not self._is_over():
                if self._ready and (not only_hangs or self._ready[0].expects_hang):
                    self._changed.notify_all()  # what is first now may be for others
                    return heapq.heappop(self._ready)
                self._changed.wait()
            return None

    def _is_over(self) -> bool:
        return self._cancelled.is_set() or self._failure is not None

    def _run_cell(self, ready: _Ready) -> None:
        """Make the attempts that are still missing, then finish the cell."""
        planned, environment = ready.planned, ready.environment
        known = self._known_records(planned, environment)
        done = judging(known)
        observed = [record for record in known if record.attempt.role is Role.OBSERVE]
        reused = len(done)
        built = self._native.get(planned, environment)
        if built is None:
            return  # interrupted: the cell stays undone
        while not built.problem and planned.wants_attempt(done[:reused], done[reused:]):
            last = [] if planned.options.provisional else done[-1:]
            record = self._longer_look(ready, last) or self._try(ready, last, built.module)
            if record is None:
                return
            done.append(record)
        if not built.problem and planned.wants_observation([*done, *observed]):
            record = self._try(ready, [], built.module, Role.OBSERVE)
            if record is None:
                return
            observed.append(record)
        records = [*done, *observed]
        self._finish(ready.place, planned, environment, ready.group, records, reused=reused, problem=built.problem)
        self._release_if_done(ready.group)

    def _longer_look(self, ready: _Ready, last: list[Record]) -> Record | None:
        """Return a record that decides a slow attempt: the same test, given long enough once before."""
        if not _is_slow(last):
            return None
        enough = SLOW_RERUN * last[0].attempt.limit
        return self._records.decisive(ready.environment.id, ready.planned.scenario, ready.planned.variant, enough)

    def _try(self, ready: _Ready, last: list[Record], native: Path | None, role: Role = Role.JUDGE) -> Record | None:
        """Make one attempt and store its record; None where it was interrupted.

        An observed one is slower, so it gets all of the timeout.
        """
        planned, environment = ready.planned, ready.environment
        is_rerun = _is_slow(last)
        limit = SLOW_RERUN * last[0].attempt.limit if is_rerun else self._limit(planned)
        limit = planned.limits.timeout if role is Role.OBSERVE else limit
        name, label = planned.name, environment.label
        why = f"still moving after {last[0].attempt.seconds:.0f} s" if is_rerun else ""
        self._emit(AttemptStarted(environment=label, cell=name, limit=limit, why=why))
        record = run_attempt(
            planned,
            environment,
            limit=limit,
            is_rerun=is_rerun,
            executor=self._executor,
            home=self._cache.home,
            folder=self._store.attempt_folder(),
            redactor=self._store.redactor,
            role=role,
            native=native,
        )
        if record is not None:
            self._store.add_record(record)
            self._records.add(record)
            self._emit(AttemptEnded(environment=label, cell=name, attempt=record.attempt))
        return record

    def _limit(self, planned: PlannedCell) -> float:
        """Return the seconds an attempt gets: its timeout, or less once the test has passed elsewhere."""
        slowest = self._records.slowest_pass(planned.scenario, planned.variant)
        if slowest is None:
            return planned.limits.timeout
        return min(planned.limits.timeout, max(SHORTEST_LIMIT, PASS_MARGIN * slowest))

    def _finish(
        self,
        place: int,
        planned: PlannedCell,
        environment: Environment,
        group: _Group,
        records: list[Record],
        *,
        reused: int = 0,
        problem: str = "",
    ) -> None:
        """Store and tell what came of a cell."""
        cell = planned.judged(environment, records, reused=reused, problem=problem)
        with self._changed:
            self._cells.append((place, cell))
            self._store.add_cell(cell, [record.key for record in records], place)
            self._undone -= 1
            group.left -= 1
            self._changed.notify_all()
        self._emit(CellDone(environment=environment, cell=cell))


def _is_slow(last: list[Record]) -> bool:
    return bool(last) and last[0].attempt.outcome is Outcome.SLOW
