"""The search, pure: evidence in, the next probe or the answer out; no clock, no I/O.

A decision depends on the observations alone, not on their order, so that a search that was killed goes on from its
records, and what a matrix has run already counts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from matrix.bisect.strategy import certain, flaky
from matrix.bisect.strategy.evidence import AnswerKind, NextProbe, ProbeRun, Search, SearchAnswer, SearchVerdict
from matrix.bisect.strategy.view import View


def decide(search: Search) -> NextProbe | SearchAnswer:
    """Return what to run next, or the answer.

    Outcomes are taken as certain until some position has passed and failed; from then on the flaky model decides,
    over the same evidence.
    """
    if search.size < 2:
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=("there are not two positions to tell apart",))
    view = View.of(search)
    step = flaky.decide(view) if _is_flaky(view) else certain.decide(view)
    return _partial(view) if isinstance(step, NextProbe) and view.is_spent else step


def partial(search: Search) -> SearchAnswer:
    """Return what is known so far, where nothing more may be run: a bracket, blaming nobody, or the answer."""
    step = decide(search)
    return _partial(View.of(search)) if isinstance(step, NextProbe) else step


def _partial(view: View) -> SearchAnswer:
    return flaky.partial(view) if _is_flaky(view) else certain.partial(view)


def _is_flaky(view: View) -> bool:
    return view.search.options.flaky or view.is_mixed


def decide_parallel(search: Search, jobs: int) -> tuple[NextProbe, ...] | SearchAnswer:
    """Return up to `jobs` probes at different positions, the most useful first, or the answer.

    The others are what would be asked next if the first were all good or all bad: for a bracket its midpoint,
    then the midpoints of both halves, and so on. Drop those that a result makes useless.
    """
    first = decide(search)
    if isinstance(first, SearchAnswer):
        return first
    probes = {first.position: first}
    ahead = deque([(search, first)])
    looked = 0
    while ahead and len(probes) < jobs and looked < 4 * jobs:
        state, probe = ahead.popleft()
        looked += 1
        for verdict in (SearchVerdict.BAD, SearchVerdict.GOOD):
            runs = 1 if probe.until is verdict else probe.runs
            supposed = (ProbeRun(position=probe.position, verdict=verdict),) * runs
            after = replace(state, observations=state.observations + supposed)
            step = decide(after)
            if isinstance(step, NextProbe):
                ahead.append((after, step))
                if len(probes) < jobs:
                    probes.setdefault(step.position, step)
    return tuple(probes.values())
