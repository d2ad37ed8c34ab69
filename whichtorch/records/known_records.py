"""What is known of tests: the records of all runs, by key and by test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from whichtorch.failures.deadline import Decider
from whichtorch.failures.patience import reached_goal
from whichtorch.model import Attempt, Outcome, Record, Role, Scenario, digest
from whichtorch.records.line_index import LineIndex, LineKind

# What decided that a busy test hangs, for a brief look elsewhere to confirm. A state that repeats needs no brief look:
# it proves itself anew within seconds.
_SHOWN = frozenset({Decider.LONGER_LOOK, Decider.SAME_PLACE})
# A record steers how its test is run on the same kind of machine where it judges and did not begin forked: a fork has
# no imports to do, so its time says nothing of a cold attempt.
_RECORDS = LineKind(
    "records",
    Record,
    {
        "key": lambda record: record.key,
        "test": lambda record: _test(record.source_hash, record.variant),
        "environment": lambda record: record.environment,
        "hardware": lambda record: record.attempt.evidence.hardware,
        "steers": lambda record: record.attempt.role is Role.JUDGE and not record.attempt.evidence.is_forked,
        "outcome": lambda record: str(record.attempt.outcome),
        "seconds": lambda record: record.attempt.seconds,
        "signature": lambda record: record.signature,
        "is_shown": lambda record: record.attempt.evidence.decided in _SHOWN,
    },
    """
    create index by_key on lines (key);
    create index by_environment on lines (test, environment);
    create index by_outcome on lines (test, hardware, outcome, seconds) where steers;
    """,
)
_ON_HARDWARE = "and hardware = :hardware"
_BEARING = """
id in (
    select id from known where test = :test and environment = :environment
    union all
    select max(id) from known where steers and test = :test and hardware = :hardware and outcome = 'hang'
    group by signature, is_shown
    union all
    select max(id) from known where steers and test = :test and hardware = :hardware and outcome in ('hang', 'slow')
    union all
    select id from (
        select id from known where steers and test = :test and hardware = :hardware and outcome = 'pass'
        order by seconds desc limit 1
    )
)
"""


def identity(record: Record) -> tuple[object, ...]:
    """Return what tells one record from all others, wherever its files lie and however its words were redacted."""
    return record.key, *attempt_identity(record.attempt)


def attempt_identity(attempt: Attempt) -> tuple[object, ...]:
    """Return what tells an attempt from the others of its test."""
    return attempt.role, attempt.outcome, attempt.started, attempt.seconds, attempt.cpu_seconds


class Records:
    """The records of all runs below `home`, and those added since. Its methods may be called from several threads."""

    def __init__(self, home: Path | None = None) -> None:
        self._lines = LineIndex(_RECORDS, home)

    def add(self, record: Record) -> None:
        """Add a record."""
        self._lines.add(record)

    def of(self, key: str) -> list[Record]:
        """Return the records of a key, oldest first."""
        return self._lines.lines("key = :key", key=key)

    def of_test(self, source_hash: str, variant: dict[str, str]) -> list[Record]:
        """Return the records of a test in every environment and under all limits, oldest first."""
        return self._lines.lines("test = :test", test=_test(source_hash, variant))

    def tests_of(self, scenario: Scenario, variant: dict[str, str]) -> list[Scenario]:
        """Return the tests that a command was seen to have, in any environment; none for any other scenario."""
        if scenario.command is None or scenario.command.test:
            return []
        own = self.of_test(scenario.source_hash, variant)
        ids = dict.fromkeys(id_ for record in own for id_ in record.attempt.evidence.tests or ())
        return list(map(scenario.of_test, ids))

    def of_tests(self, scenario: Scenario, variant: dict[str, str]) -> list[Record]:
        """Return the records of the tests that a command was seen to have; none for any other scenario."""
        return [each for test in self.tests_of(scenario, variant) for each in self.of_test(test.source_hash, variant)]

    def slowest_pass(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> float | None:
        """Return the seconds of a test's slowest pass in any environment on a kind of machine, or None."""
        return self._longest("outcome = 'pass'", scenario, variant, hardware)

    def longest_run(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> float:
        """Return the seconds of the longest run of a test that ended by itself, on a kind of machine; 0 for none."""
        return self._longest("outcome in ('pass', 'fail', 'crash')", scenario, variant, hardware) or 0.0

    def _longest(self, condition: str, scenario: Scenario, variant: dict[str, str], hardware: str) -> float | None:
        rows = self._steering("max(seconds)", f"{condition} {_ON_HARDWARE}", scenario, variant, hardware=hardware)
        return max((seconds for (seconds,) in rows if seconds is not None), default=None)

    def decisive(
        self, environment: str, scenario: Scenario, variant: dict[str, str], seconds: float, slow: Attempt
    ) -> Record | None:
        """Return a record that decides what a slow attempt left open, given `seconds` with a core; no `slow` one."""
        condition = "steers and test = :test and environment = :environment"
        test = _test(scenario.source_hash, variant)
        for record in self._lines.lines(condition, test=test, environment=environment):
            attempt = record.attempt
            is_enough = reached_goal(seconds, attempt.limit, attempt.evidence.headway) and attempt.outlasts(slow)
            if attempt.outcome is not Outcome.SLOW and is_enough:
                return record
        return None

    def has_run_out(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> bool:
        """Return whether a test was not done in its time, in any environment on a kind of machine."""
        condition = f"outcome in ('hang', 'slow') {_ON_HARDWARE} limit 1"
        return bool(self._steering("1", condition, scenario, variant, hardware=hardware))

    def has_hung(self, scenario: Scenario, variant: dict[str, str]) -> bool:
        """Return whether a test has hung in any environment."""
        return bool(self._steering("1", "outcome = 'hang' limit 1", scenario, variant))

    def has_hung_at(self, scenario: Scenario, variant: dict[str, str], signature: str = "") -> bool:
        """Return whether a test was shown to hang, busy, with this signature or any, in any environment."""
        condition = "outcome = 'hang' and is_shown and :signature in ('', signature) limit 1"
        return bool(self._steering("1", condition, scenario, variant, signature=signature))

    def _steering(
        self, columns: str, condition: str, scenario: Scenario, variant: dict[str, str], **values: str
    ) -> list[tuple[Any, ...]]:
        """Return columns of the records that steer how a test is run, and for which a condition is true."""
        test = _test(scenario.source_hash, variant)
        return self._lines.rows(columns, f"steers and test = :test and {condition}", test=test, **values)

    def bearing_on(self, environment: str, scenario: Scenario, variant: dict[str, str], hardware: str) -> list[Record]:
        """Return what a run of a test elsewhere has to know: all of its environment, and of the others what steers.

        These are the slowest pass, a hang of each signature, and one that was not done in its time.
        """
        test = _test(scenario.source_hash, variant)
        return self._lines.lines(_BEARING, test=test, environment=environment, hardware=hardware)


def _test(source_hash: str, variant: dict[str, str]) -> str:
    """Return what stands for a script and a variant of it."""
    return digest([source_hash, variant], 16)
