"""What was run, and what came of it: attempts, their records, cells and runs."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from whichtorch.model.base import SCHEMA, Model, OpenModel, digest
from whichtorch.model.environment import UNRESOLVABLE, Environment
from whichtorch.model.outcome import AttemptEvidence, ChainEvidence, Diagnosis, Outcome, StoppedBy
from whichtorch.model.scenario import COMMAND_MARK, ConditionResult, Limits, Scenario, name_of_test

ValueChange = tuple[float, float, float]  # its center and the ends of its interval: shares of the value, or in its unit


class Effect(StrEnum):
    """How a number compares with another."""

    WORSE = "worse"
    BETTER = "better"
    DIFFERENT = "different"  # in whichever direction, where that is what counts
    SAME = "same"  # the difference is smaller than what counts
    UNDECIDED = "undecided"

    @property
    def counts(self) -> bool:
        """Whether it is a change that counts."""
        return self in {Effect.WORSE, Effect.BETTER, Effect.DIFFERENT}


class Basis(StrEnum):
    """What decides how a number compares."""

    ASKED = ""
    ONE_THREAD = "one thread"  # of OpenMP and the BLAS
    CPU = "CPU time"  # of the same part of the same runs
    CPU_OF_ONE_THREAD = "CPU time of one thread"


class MachineState(OpenModel):
    """What else the machine did while something was measured."""

    load: float = 0.0  # tasks that ran or waited for a core, in the last minute
    others: float = 0.0  # how many cores others used, on average
    waited: float = 0.0  # the share of what was measured in which a core was missing, because others had it
    stolen: float = 0.0  # the share of all time that the hypervisor took
    throttled: float = 0.0  # likewise, a control group's limit
    megahertz: float = 0.0  # 0: not known


class Quantity(OpenModel):
    """What is measured, and how its changes are told."""

    name: str  # of the measure
    unit: str = ""
    is_share: bool = True  # changes are shares of the reference's value, not differences
    basis: Basis = Basis.ASKED
    because: str = ""  # why that is not what was asked for


class Measurement(Quantity):
    """A number of a test in an environment."""

    value: float  # the median of the runs that count
    samples: tuple[float, ...] = ()  # of each run that counts, in order
    disturbed: int = 0  # runs that waited for a core, and do not count
    reference: str = ""  # label of the environment that it is compared with; "" where it is that itself
    change: ValueChange | None = None  # against the reference
    more_is_better: bool = False
    threshold: float = 0.0  # the change that counts
    either_way: bool = False  # it counts in whichever direction
    effect: Effect | None = None
    machine: MachineState = MachineState()


class CurveStep(Model):
    """Two neighbors on an axis between which a number changes."""

    before: str
    after: str
    change: ValueChange
    effect: Effect


class Curve(Quantity):
    """A number along an axis."""

    threshold: float = 0.0
    total: ValueChange | None = None  # from the first to the last value that has the number
    steps: tuple[CurveStep, ...] = ()  # changes between neighbors that count, in order
    levels: dict[str, ValueChange] = Field(default_factory=dict)  # by value: the change from the first one
    values: dict[str, float] = Field(default_factory=dict)  # by value: the median of its runs
    missing: dict[str, str] = Field(default_factory=dict)  # values without the number: why
    alike: tuple[tuple[str, str], ...] = ()  # neighbors whose levels differ, between which no step was found
    machine: MachineState = MachineState()


AGAIN = "run again, because"  # in the note of an attempt that was made once more, before anything was recorded
UNOBSERVED = "conditions could not be observed"  # begins the reason of a pass that may be vacuous
WAITED = "crowded"  # decided of what was slow: it waited for a core, and is made again
VARIES = 1.5  # times: how much longer than another run of a test one may take where nothing is wrong
NO_COMMAND = "there is no such command in"  # the reason of a cell whose environment lacks the command
NOT_TAKEN = "; the command is not one that can be run"  # ends the reason of a cell whose command was called wrongly


class Role(StrEnum):
    """What an attempt is made for."""

    JUDGE = "judge"  # to see how the script ends
    OBSERVE = "observe"  # to see what it does on the way: never evidence of how it ends


class Attempt(Model):
    """One supervised run of a cell."""

    role: Role = Role.JUDGE
    outcome: Outcome
    seconds: float
    stopped_by: StoppedBy
    exit_code: int | None = None
    signal: str | None = None
    peak_rss_mb: float = 0
    survivors: tuple[str, ...] = ()  # processes that outlived the script, "name (pid): command line"
    stdout: str = ""  # paths, relative to the run's folder
    stderr: str = ""
    limit: float = 0  # seconds it was given: adaptive, so it may be less than the scenario's timeout
    cpu_seconds: float = 0
    started: str = ""  # UTC, ISO 8601, to the microsecond: with the key it tells an attempt from all others
    stdout_bytes: int = 0  # as written; the file keeps head and tail
    stderr_bytes: int = 0
    stacks: str = ""  # folder of the raw stacks taken before it was stopped; a path as stdout's
    diagnosis: Diagnosis | None = None  # what they show
    note: str = ""  # why this outcome, where that is not obvious
    message: str = ""  # of a `fail`: what the exception, or the one it was raised for, says in its first line
    evidence: AttemptEvidence = AttemptEvidence()

    def explains(self, slow: Attempt) -> bool:
        """Return whether this attempt shows why another one was slow, which then says nothing beside it.

        This one had more time, and took about as long; or the other one waited for a core, and was made again; or it
        ran among other tests, and this one alone, which is a doubt of its pass.
        """
        if self.outcome is Outcome.SLOW:
            return False
        own, shared = self.evidence.shared, slow.evidence.shared
        is_alone = own is not None and own.outcome != "" and shared is not None and not shared.alone
        has_waited = slow.evidence.decided == WAITED or slow.stopped_by is StoppedBy.INTERRUPT
        return has_waited or is_alone or self.outlasts(slow)

    def outlasts(self, slow: Attempt) -> bool:
        """Return whether it had more time than a slow attempt, and took about as long as that."""
        return self.limit > slow.limit and VARIES * self.seconds >= min(slow.seconds, slow.limit)


class Record(Model):
    """What is stored of a finished attempt, one JSON object per line."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    key: str  # `record_key`
    environment: str  # id
    scenario: str
    source_hash: str
    variant: dict[str, str]
    limits: Limits
    attempt: Attempt
    signature: str | None = None

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


def judging_records(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return the records of attempts that judge a cell, without those that only observe it."""
    return tuple(record for record in records if record.attempt.role is Role.JUDGE)


def lasting_records(records: Iterable[Record]) -> tuple[Record, ...]:
    """Return the records that later runs may use: an error says nothing of a test, and the machine may be fine now."""
    return tuple(record for record in records if record.attempt.outcome is not Outcome.ERROR)


def speaking(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Return the attempts that say how a cell ends, which together are its mixture of outcomes.

    Left out is what observes, an error beside anything else, and what is slow if another attempt explains why.
    """
    judging = [attempt for attempt in attempts if attempt.role is Role.JUDGE]
    ended = [attempt for attempt in judging if attempt.outcome is not Outcome.ERROR] or judging

    def is_explained(attempt: Attempt) -> bool:
        return attempt.outcome is Outcome.SLOW and any(each.explains(attempt) for each in ended)

    return [attempt for attempt in ended if not is_explained(attempt)]


def combine(attempts: Iterable[Attempt]) -> Attempt | None:
    """Return the attempt that speaks for a cell, whatever the order of its attempts.

    Of several, the most frequent red outcome speaks, since a pass does not take a hang back; else one that is slow.
    """
    counting = speaking(attempts)
    counts = Counter(attempt.outcome for attempt in counting)

    def weight(attempt: Attempt) -> tuple[object, ...]:
        outcome = attempt.outcome
        is_slow = outcome is Outcome.SLOW
        return outcome.is_red, is_slow, counts[outcome], outcome.row.severity, outcome is Outcome.PASS

    return max(counting, key=weight, default=None)


def record_key(environment: str, source_hash: str, variant: dict[str, str], limits: Limits, variables: str = "") -> str:
    """Return what makes two attempts the same test, so that nothing is tested twice."""
    return digest(
        [environment, source_hash, variant, limits.model_dump(), *filter(None, [variables])], 20
    )  # with "", as before


class Doubt(StrEnum):
    """Why a pass may mean nothing."""

    UNMET = "unmet"  # its conditions were not met
    UNOBSERVED = "unobserved"  # nobody could observe them
    UNCALLED = "uncalled"  # the script defines tests, and calls none
    ORDER = "order"  # it passes alone, and goes wrong after other tests
    UNUSED = "unused"  # the script never imported torch; it passes as any other
    UNREAD = "unread"  # its later runs read nothing that earlier ones had cached


class Cell(Model):
    """An environment, a scenario and a variant, with what came of them."""

    environment: str  # id
    scenario: str
    variant: dict[str, str] = {}
    source_hash: str = ""  # of the script that was run
    outcome: Outcome
    signature: str | None = None
    expected: bool
    known: str = ""  # why its header expects something else than a pass
    seconds: float  # of the attempt that gave the outcome
    attempts: tuple[Attempt, ...] = ()  # those that judge
    conditions: tuple[ConditionResult, ...] = ()  # of a pass or a hang whose scenario declares some
    reused: int = Field(default=0, exclude=True)  # how many attempts came from earlier runs
    reason: str | None = None  # of an outcome that no attempt explains
    doubt: Doubt | None = None  # why its pass may mean nothing; of a vacuous cell, too
    command: tuple[str, ...] = ()  # of a command's test: what runs just this test
    options: tuple[str, ...] = ()  # of the command line, that say how a command is run
    numbers: tuple[Measurement, ...] = ()  # that were measured
    conflict: str = ""  # of a merged cell: which part saw what, where they disagree

    @model_validator(mode="before")
    @classmethod
    def _with_doubt(cls, fields: Any) -> Any:
        """Give a cell its doubt where it is not told: records of before have it in their outcome and reason only."""
        if isinstance(fields, dict) and fields.get("doubt") is None:
            if fields.get("outcome") == Outcome.VACUOUS:
                return fields | {"doubt": Doubt.UNMET}
            if fields.get("outcome") == Outcome.PASS and str(fields.get("reason") or "").startswith(UNOBSERVED):
                return fields | {"doubt": Doubt.UNOBSERVED}
        return fields

    @property
    def name(self) -> str:
        """What names just this: the scenario, and the variant in brackets."""
        return name_of_test(self.scenario, self.variant)

    @property
    def runnable(self) -> str:
        """What runs just this: its name, or the command of a test of one, after the options for a command."""
        name = COMMAND_MARK + shlex.join(self.command) if self.command else self.name
        return " ".join([*self.options, name])

    @property
    def sandbox_options(self) -> tuple[str, ...]:
        """The options of the command line that run it in a sandbox, if it ran in one."""
        return ("--sandbox", "bubblewrap") if any(attempt.evidence.sandbox for attempt in self.attempts) else ()

    @property
    def diagnosis(self) -> Diagnosis | None:
        """What the stacks of the last attempt with this outcome show."""
        return next((attempt.diagnosis for attempt in self._alike if attempt.diagnosis), None)

    @property
    def what(self) -> str | None:
        """What happened, for people: where a hung cell is stuck, else its signature."""
        shown = self.diagnosis if self.outcome in {Outcome.HANG, Outcome.SLOW} else None
        return shown.summary if shown else self.signature

    @property
    def message(self) -> str:
        """What the exception says of the attempt that speaks for it."""
        return next((attempt.message for attempt in self._alike), "")

    @property
    def chain(self) -> ChainEvidence | None:
        """Which run of a chain decided, of the attempt that speaks for it."""
        shown = Outcome.PASS if self.outcome is Outcome.VACUOUS else self.outcome  # as its attempts ended
        return next((each.evidence.chain for each in reversed(self.attempts) if each.outcome is shown), None)

    @property
    def _alike(self) -> Iterator[Attempt]:
        """Its attempts that ended as it did, the last one first."""
        return (attempt for attempt in reversed(self.attempts) if attempt.outcome is self.outcome)

    @property
    def lacks_command(self) -> bool:
        """True where its environment does not have the user's command, or not so."""
        return self.outcome is Outcome.ERROR and any(why in (self.reason or "") for why in (NO_COMMAND, NOT_TAKEN))

    @property
    def is_unresolvable(self) -> bool:
        """True where no versions of packages satisfy what the user asked for."""
        return self.outcome is Outcome.UNBUILDABLE and (self.reason or "").startswith(UNRESOLVABLE)

    @property
    def is_doubted(self) -> bool:
        """True for a pass that may mean nothing. A script that torch is not needed for is as good as it says."""
        return self.doubt not in {None, Doubt.UNUSED}

    @property
    def agreement(self) -> tuple[int, int]:
        """How many attempts ended as it did, and of how many; those that another one explains do not count."""
        shown = Outcome.PASS if self.outcome is Outcome.VACUOUS else self.outcome  # as its attempts ended
        outcomes = [attempt.outcome for attempt in speaking(self.attempts)]
        return sum(outcome is shown for outcome in outcomes), len(outcomes)

    @property
    def flaky(self) -> str | None:
        """Return "k of n" where attempts disagree."""
        agreeing, made = self.agreement
        return f"{agreeing} of {made}" if agreeing < made else None

    @property
    def is_red(self) -> bool:
        """True for what is wrong with torch or the script: slow in some attempts, and in time in others, is that."""
        return self.outcome.is_red or (self.outcome is Outcome.SLOW and self.flaky is not None)

    @property
    def has_failed(self) -> bool:
        """True for a red outcome that its scenario does not expect."""
        return self.is_red and not self.expected


class Run(Model):
    """One call of the tool."""

    id: str
    name: str = ""  # that a user gave it
    started: str  # UTC, ISO 8601
    seconds: float = 0
    home: str = ""  # the folder that the attempts' paths are relative to; stored, it may begin with ~
    command: tuple[str, ...] = ()
    planned: int = 0  # cells; 0 where a search decides as it goes
    ended: bool = False  # False while it runs, and where it was killed
    interrupted: bool = False
    exit_code: int | None = None  # of a matrix
    outcomes: dict[Outcome, int] = {}  # of its cells; of a run that has ended
    unexpected: int = 0  # of its cells: those that no scenario expects so
    parts: tuple[str, ...] = ()  # ids of the runs that were merged into it

    @property
    def kind(self) -> str:
        """The command that made it, such as "matrix"."""
        return self.command[0] if self.command else ""


class Result(Model):
    """A whole run: what --json writes, and what every report is made from."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    run: Run
    scenarios: tuple[Scenario, ...] = ()
    environments: tuple[Environment, ...]
    cells: tuple[Cell, ...]

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @property
    def is_complete(self) -> bool:
        """True where every planned cell is there."""
        return self.run.ended and not self.run.interrupted and len(self.cells) >= self.run.planned
