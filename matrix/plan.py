"""Which cells there are: environments x scenarios x variants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import scenarios
from matrix.diagnosis.verdict import combine
from matrix.model import Cell, Environment, Limits, Outcome, Record, Request, Scenario, record_key, variant_suffix

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How cells are run."""

    timeout: float | None = None  # seconds, instead of the scenarios' own
    repeat: int = 1  # attempts a cell
    jobs: int = 1  # attempts at once
    fresh: bool = False  # records of earlier runs do not count
    stall: bool = True  # stop early on evidence of a deadlock


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """A scenario and variant to be run in an environment."""

    request: Request
    scenario: Scenario
    variant: dict[str, str]
    options: Options

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
        return self._is_expected(Outcome.HANG, environment)

    def judged(self, environment: Environment, records: Sequence[Record], *, reused: int = 0) -> Cell:
        """Return the cell with what came of it.

        Without records it takes the environment's own outcome: it could not be installed, or is broken.
        """
        attempts = tuple(record.attempt for record in records)
        speaker = combine(attempts)
        if speaker is None:
            outcome = environment.outcome or Outcome.ERROR
            signature, seconds, reason = None, 0.0, environment.reason
        else:
            outcome, seconds, reason = speaker.outcome, speaker.seconds, speaker.note or None
            signature = next(record.signature for record in records if record.attempt is speaker)
        return Cell(
            environment=environment.id,
            scenario=self.scenario.name,
            variant=self.variant,
            outcome=outcome,
            signature=signature,
            expected=self._is_expected(outcome, environment),
            seconds=seconds,
            attempts=attempts,
            reused=reused,
            reason=reason,
        )

    def _is_expected(self, outcome: Outcome, environment: Environment) -> bool:
        return scenarios.is_expected(
            outcome,
            self.scenario,
            self.variant,
            torch=environment.torch,
            python=environment.python,
            build=environment.build,
            config=environment.config,
        )


def plan(requests: Iterable[Request], suite: Sequence[Scenario], options: Options) -> list[PlannedCell]:
    """Return every cell once, environment by environment."""
    tests = {
        (scenario.name, variant_suffix(variant)): (scenario, variant)
        for scenario in suite
        for variant in scenarios.variants_of(scenario)
    }
    return [
        PlannedCell(request=request, scenario=scenario, variant=variant, options=options)
        for request in requests
        for scenario, variant in tests.values()
    ]


def decided(records: Sequence[Record]) -> int:
    """Return how many of a cell's records need no longer look: all but the slow ones."""
    return sum(record.attempt.outcome is not Outcome.SLOW for record in records)
