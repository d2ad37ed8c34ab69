"""What is known of tests: the records of all runs, by key and by test."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

from whichtorch.matrix.diagnosis.deadline import Decider
from whichtorch.matrix.diagnosis.patience import reached_goal
from whichtorch.matrix.model import Outcome, Record, Role
from whichtorch.matrix.records.scratch import scratch_database

if TYPE_CHECKING:
    from whichtorch.matrix.model import Scenario

# What decided that a busy test hangs, for a brief look elsewhere to confirm. A state that repeats needs no brief look:
# it proves itself anew within seconds.
_SHOWN = frozenset({Decider.LONGER_LOOK, Decider.SAME_PLACE})

# A record steers how its test is run on the same kind of machine where it judges and did not begin forked: a fork has
# no imports to do, so its time says nothing of a cold attempt.
_TABLES = """
create table records (
    id integer primary key, key text, test text, environment text, hardware text, steers integer,
    outcome text, seconds real, signature text, is_shown integer, record blob
);
create index by_key on records (key);
create index by_environment on records (test, environment);
create index by_outcome on records (test, hardware, outcome, seconds) where steers;
create view steering as select * from records where steers;
"""
_ADD = "insert into records values (null, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_OF_KEY = "select record from records where key = :key order by id"
_OF_TEST = "select record from records where test = :test order by id"
_STEERING = "select record from steering where test = :test and environment = :environment order by id"
_SLOWEST = "select max(seconds) from steering where test = :test and hardware = :hardware and outcome = 'pass'"
_LONGEST = """
select max(seconds) from steering where test = :test and hardware = :hardware and outcome in ('pass', 'fail', 'crash')
"""
_RAN_OUT = "select 1 from steering where test = :test and hardware = :hardware and outcome in ('hang', 'slow') limit 1"
_HUNG_AT = """
select 1 from steering where test = :test and outcome = 'hang' and is_shown
and (:signature = '' or signature = :signature) limit 1
"""
_BEARING = """
select record from records where id in (
    select id from records where test = :test and environment = :environment
    union all
    select max(id) from steering where test = :test and hardware = :hardware and outcome = 'hang'
    group by signature, is_shown
    union all
    select max(id) from steering where test = :test and hardware = :hardware and outcome in ('hang', 'slow')
    union all
    select id from (
        select id from steering where test = :test and hardware = :hardware and outcome = 'pass'
        order by seconds desc limit 1
    )
) order by id
"""


def identity(record: Record) -> tuple[object, ...]:
    """Return what tells one attempt from all others, wherever its files lie and however its words were redacted."""
    attempt = record.attempt
    return record.key, attempt.role, attempt.started, attempt.seconds, attempt.cpu_seconds


class Records:
    """All records of all runs, on disk where they are many. Its methods may be called from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._database = scratch_database(self, _TABLES)

    def add(self, record: Record) -> None:
        """Add a record."""
        attempt, evidence = record.attempt, record.attempt.evidence
        row = (
            record.key,
            _test(record.source_hash, record.variant),
            record.environment,
            evidence.hardware,
            attempt.role is Role.JUDGE and not evidence.is_forked,
            str(attempt.outcome),
            attempt.seconds,
            record.signature,
            evidence.decided in _SHOWN,
            record.model_dump_json(by_alias=True).encode(),
        )
        with self._lock:
            self._database.execute(_ADD, row)

    def of(self, key: str) -> list[Record]:
        """Return the records of a key, oldest first."""
        return self._records(_OF_KEY, key=key)

    def of_test(self, source_hash: str, variant: dict[str, str]) -> list[Record]:
        """Return the records of a test in every environment and under all limits, oldest first."""
        return self._records(_OF_TEST, test=_test(source_hash, variant))

    def slowest_pass(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> float | None:
        """Return the seconds of a test's slowest pass in any environment on a kind of machine, or None."""
        test = _test(scenario.source_hash, variant)
        seconds: float | None = self._rows(_SLOWEST, test=test, hardware=hardware)[0][0]
        return seconds

    def decisive(self, environment: str, scenario: Scenario, variant: dict[str, str], seconds: float) -> Record | None:
        """Return a record that decides a test in an environment, given `seconds` with a core; no `slow` one."""
        test = _test(scenario.source_hash, variant)
        for record in self._records(_STEERING, test=test, environment=environment):
            attempt = record.attempt
            if attempt.outcome is not Outcome.SLOW and reached_goal(seconds, attempt.limit, attempt.evidence.headway):
                return record
        return None

    def has_run_out(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> bool:
        """Return whether a test was not done in its time, in any environment on a kind of machine."""
        return bool(self._rows(_RAN_OUT, test=_test(scenario.source_hash, variant), hardware=hardware))

    def longest_run(self, scenario: Scenario, variant: dict[str, str], hardware: str = "") -> float:
        """Return the seconds of the longest run of a test that ended by itself, on a kind of machine; 0 for none."""
        test = _test(scenario.source_hash, variant)
        return float(self._rows(_LONGEST, test=test, hardware=hardware)[0][0] or 0)

    def has_hung_at(self, scenario: Scenario, variant: dict[str, str], signature: str = "") -> bool:
        """Return whether a test was shown to hang, busy, with this signature or any, in any environment."""
        return bool(self._rows(_HUNG_AT, test=_test(scenario.source_hash, variant), signature=signature))

    def bearing_on(self, environment: str, scenario: Scenario, variant: dict[str, str], hardware: str) -> list[Record]:
        """Return what a run of a test elsewhere has to know: all of its environment, and of the others what steers.

        These are the slowest pass, a hang of each signature, and one that was not done in its time.
        """
        test = _test(scenario.source_hash, variant)
        return self._records(_BEARING, test=test, environment=environment, hardware=hardware)

    def _records(self, question: str, **values: str) -> list[Record]:
        return [Record.model_validate_json(text) for (text,) in self._rows(question, **values)]

    def _rows(self, question: str, **values: str) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._database.execute(question, values).fetchall()


def _test(source_hash: str, variant: dict[str, str]) -> str:
    """Return the text that stands for a script and a variant of it."""
    return json.dumps([source_hash, variant], sort_keys=True)
