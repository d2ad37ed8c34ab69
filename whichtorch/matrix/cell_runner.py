"""The attempts that a cell needs, made one after another on this machine until nothing is left to run of it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.failures.deadline import Decider, Patience
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
from whichtorch.matrix.native_modules import NativeModule, NativeModules
from whichtorch.matrix.variation import AttemptRequest
from whichtorch.matrix.work import CellEnd, Site
from whichtorch.model import Attempt, Environment, Record, Role, SharedProcess
from whichtorch.model.events import AttemptEnded, AttemptStarted, EnvironmentStage
from whichtorch.process.evidence.headway import shortest_pause
from whichtorch.process.executor import Executor, load_slowdown
from whichtorch.records.line_index import identity

if TYPE_CHECKING:
    from whichtorch.matrix.planning import PlannedCell

DOUBTED = "its forked attempt did not show the expected conditions"


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
class CellRunner(Site):
    """Makes attempts with an executor."""

    executor: Executor
    forking: Executor | None = field(default=None, kw_only=True)  # runs attempts that may fork; None: all are cold
    caches: Path | None = field(default=None, kw_only=True)  # of compilers, for forked trials, which share them
    _native: NativeModules = field(init=False)
    _written: WrittenCaches = field(init=False)

    def __post_init__(self) -> None:
        self._native = NativeModules(self.environments.home, self.executor, self._stage)
        self._written = WrittenCaches(self.environments, self._stage)

    def _stage(self, label: str, stage: str) -> None:
        self.emit(EnvironmentStage(label=label, stage=stage))

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
        module = self._native.get(planned, environment, ready.cancelled) if planned.scenario.native else NativeModule()
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
        from whichtorch.matrix.attempt import (  # here: known cells need nothing of what it imports
            once_more,
            run_attempt,
        )
        from whichtorch.matrix.cache_chain import run_chain

        executor = self.forking if self.forking and order.fork_level else self.executor
        run = partial(run_attempt, executor=executor, home=self.environments.home, store=self.store)
        if planned.chain is None:
            return once_more(lambda: run(planned, environment, order))
        return once_more(lambda: run_chain(planned, environment, order, run, self.store, self._written))

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
