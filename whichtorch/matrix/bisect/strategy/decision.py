"""The search as a pure function: evidence in, the next probe or the answer out. No clock, no I/O.

A decision depends on the observations alone, not on their order. So a killed search continues from its records, and
the runs of a matrix count. Every outcome counts as certain, and every position is probed once, until runs disagree:
then `flaky.py` decides.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import accumulate, pairwise

from whichtorch.matrix.bisect.strategy import bracket, flaky
from whichtorch.matrix.bisect.strategy.posterior import Posterior, best_batch
from whichtorch.matrix.bisect.strategy.search_state import (
    MOST_RUNS_EACH,
    AnswerKind,
    Bracket,
    Find,
    NextProbe,
    ProbeRun,
    Purpose,
    SearchAnswer,
    SearchState,
    SearchVerdict,
)
from whichtorch.matrix.bisect.strategy.view import Transition, View, check_bounds, find_edge, sample, widen


def decide(search: SearchState) -> NextProbe | SearchAnswer:
    """Return what to run next, or the answer.

    Outcomes are taken as certain until some position has both passed and failed. From then on the flaky model
    decides, over the same evidence.

    Whatever the runs show, a search of n positions ends within `most_runs(n)` of them: 2 n + 20, or 8 n + 160 where
    runs disagree, at most MOST_RUNS_EACH of them at one position. All runs count, those that are no evidence, too. When
    they are used up, the answer is what is known.
    """
    view = View.of(search)
    step = _step(view)
    if isinstance(step, SearchAnswer):
        return _with_unsteady(view, step)
    runs = min(step.runs, view.left, MOST_RUNS_EACH - view.at(step.position).runs)
    return replace(step, runs=runs) if runs > 0 else _partial(view)


def _step(view: View) -> NextProbe | SearchAnswer:
    """Return what to run next, however many runs are left, or the answer."""
    if view.search.size < 2:
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=("at least two positions are needed",))
    bounds = check_bounds(view)
    if isinstance(bounds, NextProbe):
        return bounds
    if bounds is None:
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=("no two positions could be tested",))
    return flaky.decide(view) if view.is_flaky else _decide_certain(view, bounds)


def partial(search: SearchState) -> SearchAnswer:
    """Return the answer, or a bracket that blames nothing, where nothing more may be run."""
    step = decide(search)
    return _partial(View.of(search)) if isinstance(step, NextProbe) else step


def _partial(view: View) -> SearchAnswer:
    answer = flaky.partial(view) if view.is_flaky else _partial_certain(view)
    spent = (f"the limit of {view.most} runs is reached",) if view.left <= 0 else ()
    return _with_unsteady(view, replace(answer, reasons=(*answer.reasons, *spent)))


def _with_unsteady(view: View, answer: SearchAnswer) -> SearchAnswer:
    """Return an answer with a reason for each position of which some runs show another failure than the others."""
    unsteady = tuple(
        f"{view.name(position)} fails in another way in {counts.different} of {counts.runs} runs"
        for position, counts in view.tallies.items()
        if counts.different and counts.decisive
    )
    return replace(answer, reasons=(*answer.reasons, *unsteady))


def decide_parallel(search: SearchState, jobs: int) -> tuple[NextProbe, ...] | SearchAnswer:
    """Return up to `jobs` probes at different positions, the most useful first, or the answer.

    The first is the one that `decide` returns. The others would come next if it were all good or all bad: in a
    bracket the midpoint, then the midpoints of both halves, and so on. Drop those that a result makes useless.
    Together they ask for no more runs than are left; what runs already comes on top.
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
    planned, left = list(probes.values()), View.of(search).left
    used = accumulate(probe.runs for probe in planned)
    return tuple(probe for probe, runs in zip(planned, used, strict=True) if runs <= left)


def _decide_certain(view: View, bounds: tuple[int, int]) -> NextProbe | SearchAnswer:
    """Return the next probe or the answer where every outcome counts as certain, given two testable bounds."""
    find = view.search.options.find
    wanted = [step for step in view.steps if find.wants(step.change)]
    reasons: list[str] = []
    if not wanted:
        if probe := widen(view) or find_edge(view):
            return probe
        wanted = view.steps
        reasons += [f"no {find} was found; the bounds show a {step.change} instead" for step in wanted[:1]]
    probe = None if wanted else _repeat_good_bound(view, bounds)
    if not wanted or find is Find.ALL:
        probe = probe or sample(view)
    if probe:
        return probe
    if not wanted:
        return _no_change(view)
    if probe := _repeat_doubtful(view):
        return probe
    boundaries = []
    for step in reversed(wanted):  # the newest first: it is nearest to what is in use
        narrowed = _narrow(view, step)
        if isinstance(narrowed, NextProbe):
            return narrowed
        boundaries.append(narrowed)
    reasons += _untested_ends(view, find)
    if len(view.steps) > 1:
        names = [(step.change, view.name(step.before), view.name(step.after)) for step in view.steps]
        changes = ", ".join(f"a {change} between {before} and {after}" for change, before, after in names)
        reasons.append(f"more than one change: {changes}")
    is_sure = all(boundary.confidence >= view.search.options.confidence for boundary in boundaries)
    if not is_sure:
        reasons.append("no version is blamed: the confidence asked for was not reached")
    kind = AnswerKind.BOUNDARY if is_sure else AnswerKind.INCONCLUSIVE
    return SearchAnswer(kind=kind, boundaries=tuple(reversed(boundaries)), reasons=tuple(reasons))


def _partial_certain(view: View) -> SearchAnswer:
    """Return what is known when the budget is used up."""
    find = view.search.options.find
    steps = [step for step in view.steps if find.wants(step.change)] or view.steps
    brackets = tuple(view.boundary(step, view.confidence(step, _posterior(view, step))) for step in steps)
    return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, boundaries=brackets)


def _posterior(view: View, step: Transition) -> Posterior:
    """Return the posterior of a step, given the runs on its two sides up to the neighbouring changes."""
    low, high = view.reaches
    low = max([low, *(other.after for other in view.steps if other.after <= step.before)])
    high = min([high, *(other.before for other in view.steps if other.before >= step.after)])
    return view.posterior(step.change, low, high, flaky=False)


def _repeat_good_bound(view: View, bounds: tuple[int, int]) -> NextProbe | None:
    """Return a rerun of a good bound: where no bound is bad, a flaky failure would have to show at one of them."""
    for bound in bounds:
        missing = view.missing(bound, view.search.options.bound_runs)
        if view.label(bound) is SearchVerdict.GOOD and missing > 0:
            return _again(view, bound, missing)
    return None


def _repeat_doubtful(view: View) -> NextProbe | None:
    """Return a rerun where several changes rest on few runs, because one of them may be a flake."""
    steps, labelled = view.steps, view.labelled
    if len(steps) < 2:
        return None
    edges = [labelled[0], *(step.after for step in steps), view.search.size]
    for first, after in pairwise(edges):
        alike = [position for position in labelled if first <= position < after]
        missing = view.search.options.bound_runs - view.runs_of(alike)
        open_ones = [position for position in alike if view.is_open(position)]
        if missing > 0 and open_ones:
            return _again(view, open_ones[len(open_ones) // 2], missing)
    return None


def _again(view: View, position: int, runs: int) -> NextProbe:
    """Return a rerun that ends with the first contradiction, because one is enough to switch to the flaky model."""
    other = SearchVerdict.GOOD if view.label(position) is SearchVerdict.BAD else SearchVerdict.BAD
    return NextProbe(position=position, runs=runs, until=other, purpose=Purpose.CONFIRM)


def _narrow(view: View, step: Transition) -> NextProbe | Bracket:
    """Return the next probe inside a step, or the boundary once nothing is left to try."""
    costs = view.search.costs
    install = max(costs.install, default=0.0)  # of any position: what is installed already must not move the probe
    share = bracket.bad_share(install + costs.good, install + costs.bad, step.after - step.before)
    share = share if view.label(step.after) is SearchVerdict.BAD else 1 - share
    dead = view.dead(step.before, step.after)
    position = bracket.next_probe(step.before, step.after, dead, share)
    if position is None:
        position = bracket.next_check(dead)
    if position is not None:
        return NextProbe(position=position, purpose=Purpose.NARROW)
    pair = (step.before, step.after)
    for end in pair:
        if view.is_unsettled(end):
            return NextProbe(position=end, purpose=Purpose.SETTLE, firm=True)
    options = view.search.options
    for end in pair:
        is_good = view.label(end) is SearchVerdict.GOOD
        missing = view.missing(end, options.pass_runs if is_good else options.confirm_runs)
        if missing > 0:
            return _again(view, end, missing)
    posterior = _posterior(view, step)
    confidence = view.confidence(step, posterior)
    if confidence < options.confidence:
        mirrored = {view.mirror(end, step.change) for end in pair if view.is_open(end)}
        others = set(range(posterior.low, posterior.high + 1)) - mirrored
        batch = best_batch(posterior, install=lambda _: 0.0, good=costs.good, bad=costs.bad, closed=others)
        if batch:
            return _again(view, view.mirror(batch.position, step.change), batch.runs)
    return view.boundary(step, confidence)


def _untested_ends(view: View, find: Find) -> list[str]:
    """Return a reason for each bound that is no evidence: changes between it and the tested ones would not show."""
    if find is Find.ALL:
        return []
    low, high = view.search.bounds
    first, last = view.labelled[0], view.labelled[-1]
    ends = ((low, first, "before"), (high, last, "after"))
    lacks = ("could not be tested", "fails in another way")
    return [
        f"{view.name(end)} {lacks[view.label(end) is SearchVerdict.DIFFERENT]}, and what is {side} "
        f"{view.name(outermost)} was not tried: other changes there would not show; --find all looks for them"
        for end, outermost, side in ends
        if not view.is_labelled(end) and abs(end - outermost) > 1
    ]


def _no_change(view: View) -> SearchAnswer:
    """Return that nothing changes, or an inconclusive answer where a change may lie beyond the newest tested one."""
    labelled, (low, high) = view.labelled, view.search.bounds
    label = "bad" if SearchVerdict.BAD in {view.label(position) for position in labelled} else "good"
    tested = f"{len(labelled)} positions were tested"
    if labelled[-1] < high:
        reason = f"{tested}, none of them newer than {view.name(labelled[-1])}: all are {label}"
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=(reason,))
    older = "both bounds among them" if labelled[0] <= low else f"none of them older than {view.name(labelled[0])}"
    reason = f"{tested}, {older}: all are {label}"
    hint = () if label == "bad" else ("a failure that shows rarely may have been missed: search for a flaky one",)
    return SearchAnswer(kind=AnswerKind.NONE, reasons=(reason, *hint))
