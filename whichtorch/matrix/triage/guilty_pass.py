"""Which application of a part of the compiler a failure needs: the first, by halving, with which it appears.

torch's bisector counts what a part applies, and leaves out what comes after a number: from 2.6 on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.matrix.triage.case_runs import Setting
from whichtorch.matrix.triage.ladder import mending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.diagnosis.failure import Failure
    from whichtorch.matrix.triage.case_runs import CaseRun, CaseRuns
    from whichtorch.matrix.triage.failure_facts import Rung

_ALL = 10**6  # more than any part applies in a compilation
_NAME = 100  # characters of what is applied


def guilty_pass(runs: CaseRuns, rungs: Sequence[Rung], failure: Failure, limit: float) -> str:
    """Return, in words, the first application with which the script fails; "" where that cannot be found.

    All runs are forked: the time of cold ones is not worth the answer. KeyboardInterrupt passes through.
    """
    rung = mending(rungs)
    if not rung or not runs.forks:
        return ""

    def applying(most: int) -> CaseRun:
        return runs.run(limit, Setting(rung={**rung, "most": most}, may_fork=True))

    whole = applying(_ALL)
    if not failure.compare(whole.failure):
        return ""
    passing, failing = 0, len(whole.applied)
    while failing - passing > 1:
        middle = (passing + failing) // 2
        if failure.compare(applying(middle).failure):
            failing = middle
        else:
            passing = middle
    if not failing:
        return ""
    name = whole.applied[failing - 1][:_NAME]
    return f"number {failing} of the {len(whole.applied)} {rung['without']}" + (f": {name}" if name else "")
