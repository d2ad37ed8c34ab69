"""Which application of a part of the compiler a failure needs: the first, by halving, with which it appears.

torch's bisector counts what a part applies, and leaves out what comes after a number: from 2.6 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.triage.case_runs import Setting
from whichtorch.matrix.triage.ladder import mending
from whichtorch.matrix.triage.questions import drive, lowest

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from whichtorch.matrix.bisect.sightings import Failure
    from whichtorch.matrix.triage.case_runs import CaseRun, CaseRuns
    from whichtorch.matrix.triage.signs import Rung

_ALL = 10**6  # more than any part applies in a compilation
_NAME = 100  # characters of what is applied


def culprit_pass(runs: CaseRuns, rungs: Sequence[Rung], failure: Failure, limit: float) -> str:
    """Return, in words, the first application with which the script fails; "" where that cannot be found.

    All runs are forked: the time of cold ones is not worth the answer. KeyboardInterrupt passes through.
    """
    rung = mending(rungs)
    if not rung or not runs.forks:
        return ""

    def applying(most: int) -> CaseRun:
        return runs.run(limit, Setting(rung={**rung, "most": most}, may_fork=True))

    whole = applying(_ALL)
    count = len(whole.applied)
    if not count or not failure.is_shown_by(whole.record):
        return ""
    number = drive(lowest(_fails_with, 1, count), lambda most: failure.is_shown_by(applying(most).record))
    name = whole.applied[number - 1][:_NAME]
    return f"number {number} of the {count} {rung['without']}" + (f": {name}" if name else "")


def _fails_with(most: int) -> Generator[int, bool, bool]:
    """Ask whether the script fails with so many applications."""
    return (yield most)
