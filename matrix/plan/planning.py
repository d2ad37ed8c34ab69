"""Which cells there are: environments x scenarios x variants, and what is left to run of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.diagnosis import conditions
from matrix.diagnosis.verdict import combine
from matrix.model import Limits, Outcome, Role, judging_records, record_key, variant_suffix
from matrix.plan.expansion import expand
from matrix.suite import selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from matrix.model import Environment, Expectation, Record, Request, Scenario
    from matrix.plan.matrix_file import MatrixFile


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How cells are run."""

    timeout: float | None = None  # seconds, instead of the scenarios' own
    repeat: int = 1  # attempts a cell
    jobs: int = 1  # attempts at once
    fresh: bool = False  # records of earlier runs do not count
    stall: bool = True  # stop early on evidence of a deadlock
    until: frozenset[Outcome] = frozenset()  # no attempt is made after a new one with such an outcome
    provisional: bool = False  # a slow attempt is left at that, instead of getting a longer look


@dataclass(frozen=True, slots=True, kw_only=True)
class MatrixRequest:
    """What a user asks `matrix` for, read and checked."""

    file: MatrixFile
    path: Path | None = None  # of the file; None for the default one
    interpreters: tuple[Path, ...] = ()  # of existing environments
    product: bool = True  # False where only the interpreters are meant
    suite: tuple[Scenario, ...]
    options: RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A scenario and variant to be run in an environment."""

    request: Request
    scenario: Scenario
    variant: dict[str, str]
    options: RunOptions

    @property
    def name(self) -> str:
        """The scenario, and the variant in brackets."""
        return self.scenario.name + variant_suffix(self.variant)

    @property
    def limits(self) -> Limits:
        """What its attempts may use."""
        timeout = self.options.timeout or self.scenario.timeout
        return Limits(timeout=timeout, memory_mb=self.scenario.memory_mb, stall=self.options.stall)

    def key(self, environment: Environment) -> str:
        """Return the key of its records."""
        return record_key(environment.id, self.scenario.source_hash, self.variant, self.limits)

    def expectation(self, environment: Environment | None) -> Expectation | None:
        """Return what the scenario's header says of it; before there is an environment, by what was asked for."""
        named = environment or self.request
        build = environment.build if environment else self.request.build.name
        config = environment.config if environment else self.request.config.name
        return selection.expected(
            self.scenario, self.variant, torch=named.torch, python=named.python, build=build, config=config
        )

    def expects_hang(self, environment: Environment) -> bool:
        """Return True where its header says that it hangs here."""
        line = self.expectation(environment)
        return line is not None and line.outcome is Outcome.HANG

    def is_settled(self, records: Sequence[Record]) -> bool:
        """Return True where records leave nothing to run."""
        return not self.wants_attempt(records) and not self.wants_observation(records)

    def wants_attempt(self, known: Sequence[Record], new: Sequence[Record] = ()) -> bool:
        """Return True while attempts are missing: `known` were made before, `new` since the run began."""
        if any(record.attempt.outcome in self.options.until for record in new):
            return False
        return self.decided([*known, *new]) < self.options.repeat

    def decided(self, records: Sequence[Record]) -> int:
        """Return how many records judge it and need no longer look: a slow one does, unless it is `provisional`."""
        outcomes = [record.attempt.outcome for record in judging_records(records)]
        return len(outcomes) if self.options.provisional else len(outcomes) - outcomes.count(Outcome.SLOW)

    def wants_observation(self, records: Sequence[Record]) -> bool:
        """Return True for a pass whose conditions no attempt has looked for yet.

        A hang is not run again to be observed: that would hang, too. Its stacks tell of its conditions.
        """
        deciding = combine([record.attempt for record in records])
        is_pass = deciding is not None and deciding.outcome is Outcome.PASS
        is_observed = any(record.attempt.role is Role.OBSERVE for record in records)
        return is_pass and not is_observed and bool(conditions.declared(self.scenario, self.variant))


def plan(requests: Iterable[Request], suite: Sequence[Scenario], options: RunOptions) -> list[PlannedCell]:
    """Return every cell once, environment by environment."""
    tests = {
        (scenario.name, variant_suffix(variant)): (scenario, variant)
        for scenario in suite
        for variant in selection.variants_of(scenario)
    }
    return [
        PlannedCell(request=request, scenario=scenario, variant=variant, options=options)
        for request in requests
        for scenario, variant in tests.values()
    ]


def plan_matrix(request: MatrixRequest, home: Path) -> tuple[list[PlannedCell], tuple[str, ...]]:
    """Return the cells that a user asks for, and notes on how their environments were chosen.

    Raises UsageError for a version that no index lists.
    """
    expansion = expand(
        request.file,
        interpreters_given=request.interpreters,
        cache=home / "cache",
        product=request.product,
        path=request.path,
    )
    return plan(expansion.requests, request.suite, request.options), expansion.notes
