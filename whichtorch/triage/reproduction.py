"""Run the script as its user does, and see how often it fails, how, and how fast."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.failures.patience import SAME_FAILURE, Patience
from whichtorch.failures.signature import described
from whichtorch.failures.tracebacks import shortened
from whichtorch.matrix.judgement import needs_look
from whichtorch.matrix.variation import PLAIN
from whichtorch.model import Outcome, StoppedBy
from whichtorch.triage.case import Reproduction
from whichtorch.triage.ladder import at_rung

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from whichtorch.matrix.runner import Runner
    from whichtorch.matrix.variation import Observation

RUNS = 3
STDERR_KEPT = 64 * 2**10  # characters of its end


def reproduce(runs: Runner, tell: Callable[[str], None], made: list[Observation]) -> None:
    """Run the script until its failure was seen often enough; add each run to `made` when it has ended.

    A hang that needs the whole limit is run twice only. What is slow gets a longer look, which decides; once it has
    shown a hang, the limit is enough.
    KeyboardInterrupt passes through.
    """
    limit = runs.planned.limits.timeout
    hung_at: str | None = None
    while len(made) < RUNS and not (len(made) == 2 and all(map(_took_the_clock, made))):
        # the first is as the user's own; the second notes what it compiles, and would show if that changed anything
        plain = PLAIN.model_copy(update={"hung_at": hung_at})
        variation = at_rung({}, plain) if len(made) == 1 else plain
        if not made and runs.planned.chain:
            variation = variation.model_copy(update={"names_cache": True})
        run = runs.run(limit, variation)
        made.append(run)
        if runs.planned.looks_longer and needs_look(runs.planned, run.record.attempt) and hung_at is None:
            goal, longer = Patience(timeout=limit).longer_look(run.record.attempt)
            tell(f"run {len(made)}: slow, {run.record.attempt.seconds:.1f} s; again, for {longer:.0f} s")
            made[-1] = run = runs.run(longer, variation.model_copy(update={"goal": goal}))
        attempt = run.record.attempt
        if attempt.outcome is Outcome.HANG:
            hung_at = run.record.signature or ""  # busy once more, it needs no longer look
        tell(f"run {len(made)}: {attempt.outcome.word}, {attempt.seconds:.1f} s  {attempt.message[:100]}")


def seen_in(made: Sequence[Observation], limit: float) -> tuple[Reproduction, list[Observation]]:
    """Return what runs of so many seconds at most showed, and those of them that show it."""
    shown = _of_one_failure(made)
    first = shown[0].record
    attempt, chain = first.attempt, first.attempt.evidence.chain
    longest = max(run.record.attempt.seconds for run in shown)
    return Reproduction(
        failing=len(shown) if attempt.outcome.is_red else 0,
        runs=len(made),
        outcome=attempt.outcome,
        signal=attempt.signal or "",
        signature=first.signature or "",
        message=attempt.message,
        where=attempt.diagnosis.summary if attempt.diagnosis else "",
        hang_kind=attempt.diagnosis.kind if attempt.diagnosis else "",
        seconds=longest,
        limit=limit if _took_the_clock(shown[0]) else SAME_FAILURE.limit(longest, limit),
        stderr=shortened(shown[0].stderr, STDERR_KEPT),
        others=tuple(_words(run) for run in made if run not in shown),
        shape=shown[0].failure,
        chain=chain.words if chain and attempt.outcome.is_red else "",
    ), shown


def _of_one_failure(made: Sequence[Observation]) -> list[Observation]:
    """Return the runs that show the most frequent failure; those that pass, where none fails."""
    red = [run for run in made if run.record.attempt.outcome.is_red or run.record.attempt.outcome is Outcome.SLOW]
    if not red:
        return list(made)
    alike = [[other for other in red if run.failure.compare(other.failure)] or [run] for run in red]
    return max(alike, key=len)


def _took_the_clock(run: Observation) -> bool:
    return run.record.attempt.stopped_by is StoppedBy.TIMEOUT


def _words(run: Observation) -> str:
    attempt = run.record.attempt
    return " ".join(filter(None, (attempt.outcome.word, described(run.record.signature, attempt.message))))
