"""From the records of a planned cell to the cell: which outcome they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.diagnosis import conditions
from matrix.model import (
    UNOBSERVED,
    Cell,
    ConditionResult,
    Doubt,
    Environment,
    Outcome,
    Record,
    Role,
    combine,
    judging_records,
)
from matrix.suite import selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.plan.planning import PlannedCell


def judged_cell(
    planned: PlannedCell, environment: Environment, records: Sequence[Record], *, reused: int = 0, problem: str = ""
) -> Cell:
    """Return the cell with the outcome that its records come to.

    Without records it has the environment's own outcome, unbuildable or broken, or is an error: `problem` says
    what kept it from running. A pass whose conditions were not met is vacuous. A hang is a hang; whether its
    conditions were met stands beside it.
    """
    attempts = tuple(record.attempt for record in judging_records(records))
    deciding = combine(attempts)
    results: tuple[ConditionResult, ...] = ()
    doubt: Doubt | None = None
    if deciding is None:
        outcome = environment.outcome or Outcome.ERROR
        signature, seconds, reason = None, 0.0, environment.reason or problem or None
    else:
        outcome, seconds, reason = deciding.outcome, deciding.seconds, deciding.note or None
        signature = next(record.signature for record in records if record.attempt is deciding)
        if outcome is Outcome.PASS:
            results, doubt, unmet = _observed(planned, records)
            outcome = Outcome.VACUOUS if doubt is Doubt.UNMET else Outcome.PASS
            reason = unmet or reason
        elif outcome is Outcome.HANG and (observation := deciding.evidence.observed):
            results = conditions.check(planned.scenario.declared(planned.variant), observation)
    line = planned.expectation(environment)
    return Cell(
        environment=environment.id,
        scenario=planned.scenario.name,
        variant=planned.variant,
        source_hash=planned.scenario.source_hash,
        outcome=outcome,
        signature=signature,
        expected=selection.agrees(outcome, line),
        known=line.why if line else "",
        seconds=seconds,
        attempts=attempts,
        conditions=results,
        reused=reused,
        reason=reason,
        doubt=doubt,
    )


def _observed(
    planned: PlannedCell, records: Sequence[Record]
) -> tuple[tuple[ConditionResult, ...], Doubt | None, str | None]:
    """Return whether the conditions of a pass were met, and in words which were not, or why that is not known."""
    declared = planned.scenario.declared(planned.variant)
    observing = [record.attempt for record in records if record.attempt.role is Role.OBSERVE]
    if not declared or not observing:
        return (), None, None
    latest = observing[-1]
    observation = latest.evidence.observed
    problem = conditions.problem_of(declared, observation)
    if latest.outcome is not Outcome.PASS:
        problem = f"the observed script ended in {latest.outcome}"
    if problem is not None or observation is None:
        return (), Doubt.UNOBSERVED, f"{UNOBSERVED}: {problem}"
    results = conditions.check(declared, observation)
    doubt = None if all(result.met for result in results) else Doubt.UNMET
    return results, doubt, conditions.unmet_reason(results)
