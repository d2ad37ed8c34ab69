"""The search as a pure function: evidence in, the next probe or the answer out. No clock, no I/O.

A decision depends on the observations alone, not on their order. So a killed search continues from its records, and
the runs of a matrix count. Every outcome counts as certain, and every position is probed once, until runs disagree:
then `flaky.py` decides.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import accumulate, pairwise

from whichtorch.search import flaky
from whichtorch.search.probes import (
    bad_share,
    check_bounds,
    confirm,
    find_edge,
    next_check,
    next_in_front,
    next_probe,
    rerun,
    rerun_bound,
    sample,
    widen,
)
from whichtorch.search.search_state import (
    MOST_RUNS_EACH,
    AnswerKind,
    Bracket,
    Find,
    NextProbe,
    Posterior,
    ProbeRun,
    Purpose,
    SearchAnswer,
    SearchState,
    SearchVerdict,
)


def decide(search: SearchState) -> NextProbe | SearchAnswer:
    """Return what to run next, or the answer.

    Outcomes are taken as certain until some position has both passed and failed. From then on the flaky model
    decides, over the same evidence.

    Whatever the runs show, a search of n positions ends within `most_runs(n)` of them: 2 n + 20, or 8 n + 160 where
    runs disagree, at most MOST_RUNS_EACH of them at one position. All runs count, those that are no evidence, too. When
    they are used up, the answer is what is known.
    """
    step = _step(search)
    if isinstance(step, SearchAnswer):
        return _with_unsteady(search, step)
    runs = min(step.runs, search.runs_left, MOST_RUNS_EACH - search.at(step.position).runs)
    return replace(step, runs=runs) if runs > 0 else _without_blame(search)


def _step(search: SearchState) -> NextProbe | SearchAnswer:
    """Return what to run next, however many runs are left, or the answer."""
    if search.size < 2:
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=("at least two positions are needed",))
    bounds = check_bounds(search)
    if isinstance(bounds, NextProbe):
        return bounds
    if bounds is None:
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=("no two positions could be tested",))
    return flaky.decide(search) if search.is_flaky else _decide_certain(search, bounds)


def answer_so_far(search: SearchState) -> SearchAnswer:
    """Return the answer, or a bracket that blames nothing, where nothing more may be run."""
    step = decide(search)
    return _without_blame(search) if isinstance(step, NextProbe) else step


def _without_blame(search: SearchState) -> SearchAnswer:
    answer = flaky.narrowest_bracket(search) if search.is_flaky else _brackets(search)
    spent = (f"the limit of {search.runs_allowed} runs is reached",) if search.runs_left <= 0 else ()
    return _with_unsteady(search, replace(answer, reasons=(*answer.reasons, *spent)))


def _with_unsteady(search: SearchState, answer: SearchAnswer) -> SearchAnswer:
    """Return an answer with a reason for each position of which some runs show another failure than the others."""
    unsteady = tuple(
        f"{search.name(position)} fails in another way in {counts.different} of {counts.runs} runs"
        for position, counts in search.tallies.items()
        if counts.different and counts.decisive
    )
    return replace(answer, reasons=(*answer.reasons, *unsteady))


def decide_parallel(search: SearchState, jobs: int) -> tuple[NextProbe, ...] | SearchAnswer:
    """Return up to `jobs` probes at different positions, the most useful first, or the answer.

    The first is the one that `decide` returns. The others would come next if it were all good or all bad, or what its
    position showed before: in a bracket the midpoint, then the midpoints of both halves, and so on. Drop those that a
    result makes useless. Together they ask for no more runs than are left; what runs already comes on top.
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
        verdicts = (SearchVerdict.BAD, SearchVerdict.GOOD)
        # reruns mostly show what was seen: to suppose otherwise would start runs for a flaky failure that is not there
        for verdict in [each for each in verdicts if each is state.label(probe.position)] or verdicts:
            runs = 1 if probe.until is verdict else probe.runs
            supposed = (ProbeRun(position=probe.position, verdict=verdict),) * runs
            after = replace(state, observations=state.observations + supposed)
            step = decide(after)
            if isinstance(step, NextProbe):
                pending.append((after, step))
                if len(probes) < jobs:
                    probes.setdefault(step.position, step)
    used = accumulate(probe.runs for probe in probes.values())
    return tuple(probe for probe, runs in zip(probes.values(), used, strict=True) if runs <= search.runs_left)


def _decide_certain(search: SearchState, bounds: tuple[int, int]) -> NextProbe | SearchAnswer:
    """Return the next probe or the answer where every outcome counts as certain, given two testable bounds."""
    find = search.options.find
    wanted = [step for step in search.steps if find.wants(step.change)]
    reasons: list[str] = []
    if not wanted:
        if probe := widen(search) or find_edge(search, min(search.tallies), max(search.tallies)):
            return probe
        wanted = search.steps
        reasons += [f"no {find} was found; the bounds show a {step.change} instead" for step in wanted[:1]]
    if not wanted:  # a flaky failure would have to show at a good bound
        return rerun_bound(search, bounds, SearchVerdict.GOOD) or sample(search) or _no_change(search)
    if probe := (sample(search) if find is Find.ALL else None) or _repeat_doubtful(search):
        return probe
    boundaries = []
    for step in reversed(wanted):  # the newest first: it is nearest to what is in use
        narrowed = _narrow(search, step)
        if isinstance(narrowed, NextProbe):
            return narrowed
        boundaries.append(narrowed)
    reasons += _untested_ends(search, find)
    if len(search.steps) > 1:
        names = [(step.change, search.name(step.before), search.name(step.after)) for step in search.steps]
        changes = ", ".join(f"a {change} between {before} and {after}" for change, before, after in names)
        reasons.append(f"more than one change: {changes}")
    is_sure = all(boundary.confidence >= search.options.confidence for boundary in boundaries)
    if not is_sure:
        reasons.append("no version is blamed: the confidence asked for was not reached")
    kind = AnswerKind.BOUNDARY if is_sure else AnswerKind.INCONCLUSIVE
    return SearchAnswer(kind=kind, boundaries=tuple(reversed(boundaries)), reasons=tuple(reasons))


def _brackets(search: SearchState) -> SearchAnswer:
    """Return what is known when the budget is used up."""
    find = search.options.find
    steps = [step for step in search.steps if find.wants(step.change)] or search.steps
    brackets = tuple(search.bracket(_posterior(search, step), step.before, step.after) for step in steps)
    return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, boundaries=brackets)


def _posterior(search: SearchState, step: Bracket) -> Posterior:
    """Return the posterior of a step, given the runs on its two sides up to the neighboring changes."""
    low, high = search.reaches
    low = max([low, *(other.after for other in search.steps if other.after <= step.before)])
    high = min([high, *(other.before for other in search.steps if other.before >= step.after)])
    return Posterior.of(search, step.change, low, high, flaky=False)


def _repeat_doubtful(search: SearchState) -> NextProbe | None:
    """Return a rerun where several changes rest on few runs, because one of them may be a flake."""
    steps, labeled = search.steps, search.labeled
    if len(steps) < 2:
        return None
    edges = [labeled[0], *(step.after for step in steps), search.size]
    for first, after in pairwise(edges):
        alike = [position for position in labeled if first <= position < after]
        missing = search.options.bound_runs - search.runs_of(alike)
        open_ones = [position for position in alike if search.is_open(position)]
        if missing > 0 and open_ones:
            return rerun(search, open_ones[len(open_ones) // 2], missing)
    return None


def _narrow(search: SearchState, step: Bracket) -> NextProbe | Bracket:
    """Return the next probe inside a step, or the boundary once nothing is left to try."""
    costs = search.costs
    install = max(costs.install, default=0.0)  # of any position: what is installed already must not move the probe
    share = bad_share(install + costs.good, install + costs.bad, step.after - step.before)
    share = share if search.label(step.after) is SearchVerdict.BAD else 1 - share
    dead = search.dead(step.before, step.after)
    side, (low, high) = search.options.dead_side, search.bounds
    if dead and ((side > 0 and step.after == high) or (side < 0 and step.before == low)):
        position = next_in_front(step.before, step.after, dead, side, share)
    elif (position := next_probe(step.before, step.after, dead, share)) is None:
        position = next_check(dead)
    if position is not None:
        return NextProbe(position=position, purpose=Purpose.NARROW)
    if probe := confirm(search, step):
        return probe
    posterior = _posterior(search, step)
    found = search.bracket(posterior, step.before, step.after)
    if found.confidence < search.options.confidence:
        pair = (end for end in (step.before, step.after) if search.is_open(end) and not search.at(end).provisional)
        if batch := posterior.best_batch(replace(costs, install=()), pair):
            return rerun(search, *batch)
    return found


def _untested_ends(search: SearchState, find: Find) -> list[str]:
    """Return a reason for each bound that is no evidence: changes between it and the tested ones would not show."""
    if find is Find.ALL:
        return []
    low, high = search.bounds
    first, last = search.labeled[0], search.labeled[-1]
    ends = ((low, first, "before"), (high, last, "after"))
    lacks = ("could not be tested", "fails in another way")
    return [
        f"{search.name(end)} {lacks[search.label(end) is SearchVerdict.DIFFERENT]}, and what is {side} "
        f"{search.name(outermost)} was not tried: other changes there would not show; --find all looks for them"
        for end, outermost, side in ends
        if not search.is_labeled(end) and abs(end - outermost) > 1
    ]


def _no_change(search: SearchState) -> SearchAnswer:
    """Return that nothing changes, or an inconclusive answer where a change may lie beyond the newest tested one."""
    labeled, (low, high) = search.labeled, search.bounds
    label = "bad" if SearchVerdict.BAD in {search.label(position) for position in labeled} else "good"
    tested = f"{len(labeled)} positions were tested"
    if labeled[-1] < high:
        reason = f"{tested}, none of them newer than {search.name(labeled[-1])}: all are {label}"
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=(reason,))
    older = "both bounds among them" if labeled[0] <= low else f"none of them older than {search.name(labeled[0])}"
    reason = f"{tested}, {older}: all are {label}"
    hint = () if label == "bad" else ("a failure that shows rarely may have been missed: search for a flaky one",)
    return SearchAnswer(kind=AnswerKind.NONE, reasons=(reason, *hint))
