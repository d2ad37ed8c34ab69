"""The deterministic search: every outcome counts as certain, and every position is probed once."""

from __future__ import annotations

import math
from itertools import pairwise

from matrix.bisect.strategy import bracket
from matrix.bisect.strategy.evidence import AnswerKind, Bracket, Find, NextProbe, Purpose, SearchAnswer, SearchVerdict
from matrix.bisect.strategy.posterior import Posterior, best_batch
from matrix.bisect.strategy.view import Transition, View, find_edge, widen


def decide(view: View, bounds: tuple[int, int]) -> NextProbe | SearchAnswer:
    """Return the next probe or the answer, given two testable bounds."""
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
        probe = probe or _sample(view)
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


def partial(view: View) -> SearchAnswer:
    """Return what is known when the budget is used up."""
    find = view.search.options.find
    steps = [step for step in view.steps if find.wants(step.change)] or view.steps
    brackets = tuple(view.boundary(step, view.confidence(step, _posterior(view, step))) for step in steps)
    return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, boundaries=brackets, reasons=("the budget was used up",))


def _posterior(view: View, step: Transition) -> Posterior:
    """Return the posterior of a step, given the runs on its two sides up to the neighbouring changes."""
    low, high = view.reaches
    low = max([low, *(other.after for other in view.steps if other.after <= step.before)])
    high = min([high, *(other.before for other in view.steps if other.before >= step.after)])
    return view.posterior(step.change, low, high, flaky=False)


def _repeat_good_bound(view: View, bounds: tuple[int, int]) -> NextProbe | None:
    """Return a rerun of a good bound: where no bound is bad, a flaky failure would have to show at one of them."""
    for bound in bounds:
        missing = view.search.options.bound_runs - view.at(bound).good
        if view.label(bound) is SearchVerdict.GOOD and missing > 0:
            return _again(view, bound, missing)
    return None


def _sample(view: View) -> NextProbe | None:
    """Return the middle of the widest untried gap until enough positions were tried."""
    low, high = view.reaches
    positions = [position for position in view.tallies if low <= position <= high]
    # positions known from earlier runs may lie close together, so their number alone does not cover the range
    widest_allowed = math.ceil((high - low) / 2 ** int(math.log2(view.samples + 1)))
    wider_than = 1 if len(positions) - 2 < view.samples else widest_allowed
    middle = bracket.widest_gap(positions, low, high, wider_than)
    return None if middle is None else NextProbe(position=middle, purpose=Purpose.SAMPLE)


def _repeat_doubtful(view: View) -> NextProbe | None:
    """Return a rerun where several changes rest on few runs, because one of them may be a flake."""
    steps, labelled = view.steps, view.labelled
    if len(steps) < 2:
        return None
    edges = [labelled[0], *(step.after for step in steps), view.search.size]
    for first, after in pairwise(edges):
        alike = [position for position in labelled if first <= position < after]
        missing = view.search.options.bound_runs - sum(view.at(position).decisive for position in alike)
        if missing > 0:
            return _again(view, alike[len(alike) // 2], missing)
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
        if view.at(end).provisional:
            return NextProbe(position=end, purpose=Purpose.SETTLE, firm=True)
    for end in pair:
        missing = view.search.options.confirm_runs - view.at(end).decisive
        if missing > 0:
            return _again(view, end, missing)
    posterior = _posterior(view, step)
    confidence = view.confidence(step, posterior)
    if confidence < view.search.options.confidence:
        mirrored = {view.mirror(end, step.change) for end in pair}
        others = set(range(posterior.low, posterior.high + 1)) - mirrored
        batch = best_batch(posterior, install=lambda _: 0.0, good=costs.good, bad=costs.bad, closed=others)
        if batch:
            return _again(view, view.mirror(batch.position, step.change), batch.runs)
    return view.boundary(step, confidence)


def _untested_ends(view: View, find: Find) -> list[str]:
    """Return a reason for each untestable bound: changes between it and the tested positions would not show."""
    if find is Find.ALL:
        return []
    low, high = view.search.bounds
    first, last = view.labelled[0], view.labelled[-1]
    ends = ((low, first, "before"), (high, last, "after"))
    return [
        f"{view.name(end)} could not be tested, and what is {side} {view.name(outermost)} was not: "
        "other changes there would not show; --find all looks for them"
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
