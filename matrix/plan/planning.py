"""Which cells there are: environments x scenarios x variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.diagnosis import conditions
from matrix.diagnosis.verdict import combine
from matrix.model import (
    UNOBSERVED,
    Cell,
    Environment,
    Limits,
    Outcome,
    Record,
    Request,
    Role,
    Scenario,
    record_key,
    variant_suffix,
)
from matrix.suite import selection

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from matrix.model import ConditionResult, Expectation


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How cells are run."""

    timeout: float | None = None  # seconds, instead of the scenarios' own
    repeat: int = 1  # attempts a cell
    jobs: int = 1  # attempts at once
    fresh: bool = False  # records of earlier runs do not count
    stall: bool = True  # stop early on evidence of a deadlock
    until: frozenset[Outcome] = frozenset()  # no attempt is made after a new one with such an outcome
    provisional: bool = False  # what was slow is left at that, instead of getting a longer look


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

    def expects_hang(self, environment: Environment) -> bool:
        """Return True where its header says that it hangs here."""
        line = self._announced(environment)
        return line is not None and line.outcome is Outcome.HANG

    def is_settled(self, records: Sequence[Record]) -> bool:
        """Return True where records leave nothing to run."""
        return not self.wants_attempt(records) and not self.wants_observation(records)

    def wants_attempt(self, known: Sequence[Record], new: Sequence[Record] = ()) -> bool:
        """Return True while attempts are missing: `known` were made before, `new` since this was asked for."""
        if any(record.attempt.outcome in self.options.until for record in new):
            return False
        return self.decided([*known, *new]) < self.options.repeat

    def decided(self, records: Sequence[Record]) -> int:
        """Return how many records judge it and need no longer look: all but the slow ones, unless those will do."""
        made = judging(records)
        slow = sum(record.attempt.outcome is Outcome.SLOW for record in made)
        return len(made) if self.options.provisional else len(made) - slow

    def wants_observation(self, records: Sequence[Record]) -> bool:
        """Return True for a pass whose conditions no attempt has looked for yet.

        What hung is not run again to be observed: that would hang, too. Its stacks tell of its conditions.
        """
        speaker = combine([record.attempt for record in records])
        is_pass = speaker is not None and speaker.outcome is Outcome.PASS
        asked = conditions.declared(self.scenario, self.variant)
        return is_pass and bool(asked) and not any(record.attempt.role is Role.OBSERVE for record in records)

    def judged(
        self, environment: Environment, records: Sequence[Record], *, reused: int = 0, problem: str = ""
    ) -> Cell:
        """Return the cell with what came of it.

        Without records it takes the environment's own outcome: it could not be installed, or is broken;
        or `problem` says what kept it from running. A pass whose conditions were not met is vacuous; a hang is
        a hang, and they are told beside it.
        """
        attempts = tuple(record.attempt for record in judging(records))
        speaker = combine(attempts)
        results: tuple[ConditionResult, ...] = ()
        if speaker is None:
            outcome = environment.outcome or Outcome.ERROR
            signature, seconds, reason = None, 0.0, environment.reason or problem or None
        else:
            outcome, seconds, reason = speaker.outcome, speaker.seconds, speaker.note or None
            signature = next(record.signature for record in records if record.attempt is speaker)
            if outcome is Outcome.PASS:
                results, instead = self._observed(records)
                outcome = Outcome.PASS if all(result.met for result in results) else Outcome.VACUOUS
                reason = instead or reason
            elif outcome is Outcome.HANG and (seen := speaker.evidence.observed):
                results = conditions.check(conditions.declared(self.scenario, self.variant), seen)
        line = self._announced(environment)
        return Cell(
            environment=environment.id,
            scenario=self.scenario.name,
            variant=self.variant,
            source_hash=self.scenario.source_hash,
            outcome=outcome,
            signature=signature,
            expected=selection.agrees(outcome, line),
            known=line.why if line else "",
            seconds=seconds,
            attempts=attempts,
            conditions=results,
            reused=reused,
            reason=reason,
        )

    def _observed(self, records: Sequence[Record]) -> tuple[tuple[ConditionResult, ...], str | None]:
        """Return what became of the conditions, and in words what was not met or why it is not known."""
        asked = conditions.declared(self.scenario, self.variant)
        observing = [record.attempt for record in records if record.attempt.role is Role.OBSERVE]
        if not asked or not observing:
            return (), None
        latest = observing[-1]
        observation = latest.evidence.observed
        problem = conditions.problem_of(asked, observation)
        if latest.outcome is not Outcome.PASS:
            problem = f"the observed script ended in {latest.outcome}"
        if problem is not None or observation is None:
            return (), f"{UNOBSERVED}: {problem}"
        results = conditions.check(asked, observation)
        return results, conditions.unmet_reason(results)

    def _announced(self, environment: Environment) -> Expectation | None:
        """Return what its header says of it here."""
        return selection.expected(
            self.scenario,
            self.variant,
            torch=environment.torch,
            python=environment.python,
            build=environment.build,
            config=environment.config,
        )


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


def judging(records: Iterable[Record]) -> list[Record]:
    """Return the records of attempts that judge a cell, without those that only observe it."""
    return [record for record in records if record.attempt.role is Role.JUDGE]
