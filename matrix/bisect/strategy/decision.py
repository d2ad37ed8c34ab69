"""The search as a pure function: evidence in, the next probe or the answer out. No clock, no I/O.

A decision depends on the observations alone, not on their order. So a killed search continues from its records, and
the runs of a matrix count.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from matrix.bisect.strategy import certain, flaky
from matrix.bisect.strategy.evidence import AnswerKind, NextProbe, ProbeRun, Search, SearchAnswer, SearchVerdict
from matrix.bisect.strategy.view import View, check_bounds


def decide(search: Search) -> NextProbe | SearchAnswer:
    """Return what to run next, or the answer.

    Outcomes are taken as certain until some position has both passed and failed. From then on the flaky model
    decides, over the same evidence.
    """
    if search.size < 2:
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=("there are not two positions to tell apart",))
    view = View.of(search)
    step: NextProbe | SearchAnswer
    bounds = check_bounds(view)
    if isinstance(bounds, NextProbe):
        step = bounds
    elif bounds is None:
        step = SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=("no two positions could be tested",))
    else:
        step = flaky.decide(view) if _is_flaky(view) else certain.decide(view, bounds)
    return _partial(view) if isinstance(step, NextProbe) and view.is_spent else step


def partial(search: Search) -> SearchAnswer:
    """Return the answer, or a bracket that blames nothing, where nothing more may be run."""
    step = decide(search)
    return _partial(View.of(search)) if isinstance(step, NextProbe) else step


def _partial(view: View) -> SearchAnswer:
    return flaky.partial(view) if _is_flaky(view) else certain.partial(view)


def _is_flaky(view: View) -> bool:
    return view.search.options.flaky or view.is_mixed


def decide_parallel(search: Search, jobs: int) -> tuple[NextProbe, ...] | SearchAnswer:
    """Return up to `jobs` probes at different positions, the most useful first, or the answer.

    The first is the one that `decide` returns. The others would come next if it were all good or all bad: in a
    bracket the midpoint, then the midpoints of both halves, and so on. Drop those that a result makes useless.
    """
    first = decide(search)
    if isinstance(first, SearchAnswer):
        return first
    probes = {first.position: first}
    pending = deque([(search, first)])
    expanded = 0
    while pending and len(probes) < jobs and expanded < 4 * jobs:
        state, probe = pending.popleft()
        expanded += 1
        for verdict in (SearchVerdict.BAD, SearchVerdict.GOOD):
            runs = 1 if probe.until is verdict else probe.runs
            supposed = (ProbeRun(position=probe.position, verdict=verdict),) * runs
            after = replace(state, observations=state.observations + supposed)
            step = decide(after)
            if isinstance(step, NextProbe):
                pending.append((after, step))
                if len(probes) < jobs:
                    probes.setdefault(step.position, step)
    return tuple(probes.values())
