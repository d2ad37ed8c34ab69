"""Which application of a part of the compiler a failure needs: the first, by halving, with which it appears.

torch's bisector counts what a part applies, and can skip the applications past a given count (torch 2.6 or newer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.search.delta import lowest
from whichtorch.matrix.search.driving import drive
from whichtorch.matrix.search.runs_oracle import asking
from whichtorch.matrix.triage.compile_variations import applied_in, at_rung
from whichtorch.matrix.triage.ladder import mending
from whichtorch.matrix.trial.variation import FORKED

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from whichtorch.matrix.diagnosis.failure import Failure
    from whichtorch.matrix.triage.failure_facts import Rung
    from whichtorch.matrix.trial.observation import Observation
    from whichtorch.matrix.trial.runner import Runner

_ALL = 10**6  # more than any part applies in a compilation
_NAME = 100  # characters of what is applied


def culprit_pass(runs: Runner, rungs: Sequence[Rung], failure: Failure, limit: float) -> str:
    """Return, in words, the first application with which the script fails; "" where that cannot be found.

    All runs are forked, because cold ones would take too long. KeyboardInterrupt passes through.
    """
    rung = mending(rungs)
    if not rung or not runs.forks:
        return ""

    def applying(most: int) -> Observation:
        return runs.run(limit, at_rung({**rung, "most": most}, FORKED))

    def fails(most: int) -> bool:
        return failure.compare(applying(most).failure).is_same

    whole = applying(_ALL)
    if not failure.compare(whole.failure):
        return ""
    applied = applied_in(whole)
    if not applied:
        return ""
    failing = drive(lowest(_fails_with, 1, len(applied)), asking(fails))
    name = applied[failing - 1][:_NAME]
    return f"number {failing} of the {len(applied)} {rung['without']}" + (f": {name}" if name else "")


def _fails_with(most: int) -> Generator[int, bool, bool]:
    """Ask whether the script fails with so many applications."""
    return (yield most)
