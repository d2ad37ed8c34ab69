"""What the records of a cell come to, and what is still to be run of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from whichtorch.hangs import conditions
from whichtorch.model import (
    CONTROL,
    UNOBSERVED,
    WAITED,
    Attempt,
    Cell,
    ConditionResult,
    Doubt,
    Environment,
    Outcome,
    Record,
    Role,
    combine,
    judging_records,
    lasting_records,
)
from whichtorch.suite import selection

if TYPE_CHECKING:
    from whichtorch.matrix.planning import PlannedCell


def counting(cell: PlannedCell, records: Sequence[Record], environment: Environment) -> Sequence[Record]:
    """Return those of its earlier records that count: with --fresh, only observations are reused."""
    lasting = [each for each in lasting_records(records) if counts(cell, each, environment, records)]
    return [each for each in lasting if each.attempt.role is Role.OBSERVE or not cell.options.fresh]


def unconfirmed(cell: PlannedCell, records: Sequence[Record], environment: Environment) -> list[Record]:
    """Return those of its earlier records that are of forked attempts, and that a cold one has to confirm."""
    if cell.options.fresh or not cell.forks:
        return []
    return [each for each in judging_records(lasting_records(records)) if not counts(cell, each, environment, records)]


def may_fork(cell: PlannedCell, environment: Environment, known: Sequence[Record]) -> bool:
    """Return whether its next attempt may be forked.

    It is expected to pass, or a cold attempt in `known` has failed.
    """
    return cell.forks and (_is_expected_to_pass(cell, environment) or bool(_cold_failures(known)))


def counts(cell: PlannedCell, record: Record, environment: Environment, known: Sequence[Record]) -> bool:
    """Return whether a record is evidence of how it ends.

    A forked one is if it is as expected, or if a cold one of the `known` failed or hung in the same way.
    """
    attempt = record.attempt
    if not attempt.evidence.is_forked:
        return True
    if not cell.forks:
        return False
    is_pass = attempt.outcome in {Outcome.PASS, Outcome.SKIP} and _is_expected_to_pass(cell, environment)
    if attempt.role is Role.OBSERVE:
        return is_pass and _is_seen_as_expected(cell, environment, record)
    return is_pass or (attempt.outcome, record.signature) in _cold_failures(known)


def _is_expected_to_pass(cell: PlannedCell, environment: Environment) -> bool:
    """Return whether its script is expected to end well: as a pass, or as one that is vacuous."""
    line = cell.expectation(environment)
    return any(selection.is_as_expected(outcome, line) for outcome in (Outcome.PASS, Outcome.VACUOUS))


def _is_seen_as_expected(cell: PlannedCell, environment: Environment, record: Record) -> bool:
    """Return whether the conditions are met in an observation; where a vacuous pass is expected, whether not."""
    _, doubt, _ = _observed(cell, [record])
    seen = Outcome.VACUOUS if doubt is Doubt.UNMET else Outcome.PASS
    return doubt is not Doubt.UNOBSERVED and selection.is_as_expected(seen, cell.expectation(environment))


def is_settled(cell: PlannedCell, records: Sequence[Record]) -> bool:
    """Return whether records leave nothing to run."""
    return not attempts_needed(cell, records) and not wants_observation(cell, records)


def attempts_needed(cell: PlannedCell, known: Sequence[Record], new: Sequence[Record] = ()) -> int:
    """Return how many attempts are missing: `known` were made before, `new` since the run began.

    What waited for a core before is made again: the machine may have room now.
    """
    if any(record.attempt.outcome in cell.options.until for record in new):
        return 0
    before = [record for record in known if record.attempt.evidence.decided != WAITED]
    return max(0, cell.options.repeat - decided(cell, [*before, *new]))


def decided(cell: PlannedCell, records: Sequence[Record]) -> int:
    """Return how many records judge it and need no other look, unless it is `provisional`.

    A slow attempt with less than the timeout needs a whole look; one with all of it a longer look, if allowed, or
    another one if it waited for a core.
    """
    judging = judging_records(records)
    return len(judging) if cell.options.provisional else sum(not needs_look(cell, each.attempt) for each in judging)


def needs_look(cell: PlannedCell, attempt: Attempt) -> bool:
    """Return whether an attempt was slow, and another one is to be given more time."""
    most = cell.limits.timeout
    is_open = cell.looks_longer or attempt.evidence.decided == WAITED
    is_short = attempt.limit < most or (attempt.limit == most and is_open)
    return attempt.outcome is Outcome.SLOW and is_short


def wants_observation(cell: PlannedCell, records: Sequence[Record]) -> bool:
    """Return True for a pass whose conditions were not looked for. A hang is not run again: its stacks tell."""
    deciding = combine([record.attempt for record in records])
    if deciding is None or deciding.outcome is not Outcome.PASS:
        return False
    is_observed = any(record.attempt.role is Role.OBSERVE for record in records)
    return not is_observed and bool(cell.scenario.declared(cell.variant))


def judge_cell(
    cell: PlannedCell, environment: Environment, records: Sequence[Record], *, reused: int = 0, problem: str = ""
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
            results, doubt, unmet = _observed(cell, records)
            if doubt is None and (together := _went_wrong_after(deciding)):
                doubt, unmet = Doubt.ORDER, together
            if doubt is None and (tests := cell.scenario.uncalled):
                doubt, unmet = Doubt.UNCALLED, f"it only defines {', '.join(tests[:3])}, and nothing calls a test"
            if doubt is None and (chain := deciding.evidence.chain) and (unread := chain.unread):
                doubt, unmet = Doubt.UNREAD, unread
            if doubt is reason is None and deciding.evidence.unused and CONTROL not in cell.scenario.tags:
                doubt, unmet = Doubt.UNUSED, "never imported torch"
            outcome = Outcome.VACUOUS if doubt in {Doubt.UNMET, Doubt.UNREAD} else Outcome.PASS
            reason = unmet or reason
        elif outcome is Outcome.HANG and (observation := deciding.evidence.observed):
            results = conditions.check(cell.scenario.declared(cell.variant), observation)
    line, command = cell.expectation(environment), cell.scenario.command
    return Cell(
        environment=environment.id,
        scenario=cell.scenario.name,
        variant=cell.variant,
        source_hash=cell.scenario.source_hash,
        outcome=outcome,
        signature=signature,
        expected=selection.is_as_expected(outcome, line),
        known=line.why if line else "",
        seconds=seconds,
        attempts=attempts,
        conditions=results,
        reused=reused,
        reason=reason,
        doubt=doubt,
        command=command.words_of_test(_pytest_root(attempts), cell.scenario.path) if command and command.test else (),
        options=cell.scenario.command_options,
    )


def _observed(
    cell: PlannedCell, records: Sequence[Record]
) -> tuple[tuple[ConditionResult, ...], Doubt | None, str | None]:
    """Return whether the conditions of a pass were met, and in words which were not, or why that is not known."""
    declared = cell.scenario.declared(cell.variant)
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


def _pytest_root(attempts: Iterable[Attempt]) -> str:
    """Return what the ids of a command's tests are relative to."""
    return next((attempt.evidence.shared.root for attempt in attempts if attempt.evidence.shared), ".")


def _cold_failures(records: Sequence[Record]) -> set[tuple[Outcome, str | None]]:
    """Return how attempts that started cold have failed, and where they have hung."""
    attempts = [(record.attempt, record.signature) for record in judging_records(records)]
    return {
        (attempt.outcome, signature)
        for attempt, signature in attempts
        if not attempt.evidence.is_forked
        and (attempt.outcome in {Outcome.FAIL, Outcome.CRASH} or (attempt.outcome is Outcome.HANG and signature))
    }


def _went_wrong_after(attempt: Attempt) -> str:
    """Return that a test, which passes alone, went wrong after others; "" where it did not."""
    shared = attempt.evidence.shared
    if shared is None or not shared.outcome:
        return ""
    return f"it passes alone; {shared.outcome.upper()} after {shared.after} in one process"
