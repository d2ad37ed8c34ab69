"""What is known of tests: the records of all runs, by key and by test."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrix.diagnosis.deadline import Decider, gives
from matrix.model import Outcome, Record, Role

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.model import Scenario

_SHOWN = frozenset({Decider.LONGER_LOOK, Decider.SAME_PLACE})  # what shows that a busy test hangs


def identity(record: Record) -> tuple[object, ...]:
    """Return what tells one attempt from all others, wherever its files lie and however its words were redacted."""
    attempt = record.attempt
    return record.key, attempt.role, attempt.started, attempt.seconds, attempt.cpu_seconds


@dataclass(slots=True)
class _Steering:
    """What the records of a test on one kind of machine say of how to run it elsewhere."""

    slowest: Record | None = None  # of the passes
    ran_out: Record | None = None  # the latest that was not done in its time
    hung: dict[str | None, Record] = field(default_factory=dict)  # by signature, a shown hang before any other

    def add(self, record: Record) -> None:
        """Take in a record of an attempt that judges and did not begin forked."""
        attempt = record.attempt
        if attempt.outcome is Outcome.PASS:
            if self.slowest is None or attempt.seconds > self.slowest.attempt.seconds:
                self.slowest = record
        elif attempt.outcome in {Outcome.HANG, Outcome.SLOW}:
            self.ran_out = record
            if attempt.outcome is Outcome.HANG and not self.has_hung_at(record.signature):
                self.hung[record.signature] = record

    def has_hung_at(self, signature: str | None) -> bool:
        """Return whether the test was shown to hang with this signature."""
        hung = self.hung.get(signature)
        return hung is not None and hung.attempt.evidence.decided in _SHOWN

    @property
    def records(self) -> Iterable[Record]:
        """All that steers."""
        return (*filter(None, (self.slowest, self.ran_out)), *self.hung.values())


@dataclass(slots=True)
class _Test:
    """The records of one script and variant, oldest first."""

    every: list[Record] = field(default_factory=list)
    by_environment: dict[str, list[Record]] = field(default_factory=lambda: defaultdict(list))
    # a fork has no imports to do, so its time says nothing of a cold attempt; and another machine may be slower
    steering: dict[str, _Steering] = field(default_factory=lambda: defaultdict(_Steering))  # by hardware

    def add(self, record: Record) -> None:
        """Take in a record."""
        self.every.append(record)
        self.by_environment[record.environment].append(record)
        evidence = record.attempt.evidence
        if record.attempt.role is Role.JUDGE and not evidence.is_forked:
            self.steering[evidence.hardware].add(record)


_NOTHING = _Test()


class Records:
    """All records of all runs. Its methods may be called from several threads."""

    def __init__(self) -> None:
        self._by_key: dict[str, list[Record]] = defaultdict(list)
        self._by_test: dict[tuple[str, frozenset[tuple[str, str]]], _Test] = defaultdict(_Test)
        self._lock = threading.Lock()

    def add(self, record: Record) -> None:
        """Add a record."""
        with self._lock:
            self._by_key[record.key].append(record)
            self._by_test[record.source_hash, frozenset(record.variant.items())].add(record)

    def of(self, key: str) -> list[Record]:
        """Return the records of a key, oldest first."""
        with self._lock:
            return list(self._by_key.get(key, ()))

    def of_test(self, source_hash: str, variant: dict[str, str]) -> list[Record]:
        """Return the records of a test in every environment and under all limits, oldest first."""
        with self._lock:
            return list(self._test(source_hash, variant).every)

    def slowest_pass(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> float | None:
        """Return the seconds of a test's slowest pass in any environment on a kind of machine, or None."""
        with self._lock:
            steering = self._test(scenario.source_hash, variant).steering.get(hardware)
        return steering.slowest.attempt.seconds if steering and steering.slowest else None

    def decisive(self, environment: str, scenario: Scenario, variant: dict[str, str], seconds: float) -> Record | None:
        """Return a record that decides a test in an environment, given `seconds` with a core; no `slow` one."""
        for record in self._of_environment(environment, scenario, variant):
            attempt = record.attempt
            if attempt.role is not Role.JUDGE or attempt.evidence.is_forked or attempt.outcome is Outcome.SLOW:
                continue
            if gives(attempt.limit, seconds, attempt.evidence.headway):
                return record
        return None

    def has_run_out(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> bool:
        """Return whether a test was not done in its time, in any environment on a kind of machine."""
        with self._lock:
            steering = self._test(scenario.source_hash, variant).steering.get(hardware)
        return steering is not None and steering.ran_out is not None

    def has_hung_at(self, scenario: Scenario, variant: dict[str, str], signature: str) -> bool:
        """Return whether a test was shown to hang, busy, with this signature, in any environment."""
        with self._lock:
            steerings = list(self._test(scenario.source_hash, variant).steering.values())
        return any(steering.has_hung_at(signature) for steering in steerings)

    def bearing_on(self, environment: str, scenario: Scenario, variant: dict[str, str], hardware: str) -> list[Record]:
        """Return what a run of a test elsewhere has to know: all of its environment, and of the others what steers.

        These are the slowest pass, a hang of each signature, and one that was not done in its time.
        """
        mine = self._of_environment(environment, scenario, variant)
        with self._lock:
            steering = self._test(scenario.source_hash, variant).steering.get(hardware)
        return list({id(each): each for each in (*mine, *(steering.records if steering else ()))}.values())

    def _of_environment(self, environment: str, scenario: Scenario, variant: dict[str, str]) -> list[Record]:
        with self._lock:
            return list(self._test(scenario.source_hash, variant).by_environment.get(environment, ()))

    def _test(self, source_hash: str, variant: dict[str, str]) -> _Test:
        return self._by_test.get((source_hash, frozenset(variant.items())), _NOTHING)
