"""The deterministic search: every outcome is taken as certain, and every position is probed once."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from matrix.bisect.strategy import bounds, bracket
from matrix.bisect.strategy.batches import best_batch
from matrix.bisect.strategy.evidence import AnswerKind, Find, NextProbe, Purpose, SearchAnswer, SearchVerdict

if TYPE_CHECKING:
    from matrix.bisect.strategy.evidence import Bracket
    from matrix.bisect.strategy.view import Transition, View


def decide(view: View) -> NextProbe | SearchAnswer:
    """Return the next probe or the answer."""
    checked = bounds.check_bounds(view)
    if isinstance(checked, NextProbe):
        return checked
    if checked is None:
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=("no two positions could be tested",))
    find = view.search.options.find
    wanted = [step for step in view.steps if find.wants(step.change)]
    reasons: list[str] = []
    if not wanted:
        probe = bounds.widen(view) or bounds.find_edge(view)
        if probe:
            return probe
        wanted = view.steps
        reasons += [f"no {find} was found; the bounds show a {step.change} instead" for step in wanted[:1]]
    if not wanted and not view.steps:
        probe = _both_good(view, checked)
        if probe:
            return probe
    if not wanted or find is Find.ALL:
        probe = _sample(view)
        if probe:
            return probe
    if not wanted:
        return _none(view)
    probe = _doubtful(view)
    if probe:
        return probe
    boundaries = []
    for step in reversed(wanted):  # the newest first: it is nearest to what is in use
        result = _narrow(view, step)
        if isinstance(result, NextProbe):
            return result
        boundaries.append(result)
    reasons += _unseen(view, find)
    if len(view.steps) > 1:
        reasons.append(f"more than one change: {', '.join(_describe(view))}")
    sure = all(one.confidence >= view.search.options.confidence for one in boundaries)
    if not sure:
        reasons.append("no version is blamed: the confidence asked for was not reached")
    kind = AnswerKind.BOUNDARY if sure else AnswerKind.INCONCLUSIVE
    return SearchAnswer(kind=kind, boundaries=tuple(reversed(boundaries)), reasons=tuple(reasons))


def partial(view: View) -> SearchAnswer:
    """Return what is known when the budget is used up."""
    find = view.search.options.find
    steps = [step for step in view.steps if find.wants(step.change)] or view.steps
    brackets = tuple(view.boundary(step, confidence_of(view, step)) for step in steps)
    return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, boundaries=brackets, reasons=("the budget was used up",))


def confidence_of(view: View, step: Transition) -> float:
    """Return the probability that a step is where it seems, given the runs of the labels on its two sides."""
    return view.confidence(step, view.posterior(step.change, *_surroundings(view, step), flaky=False))


def _surroundings(view: View, step: Transition) -> tuple[int, int]:
    """Return the outermost positions around a step before the next change."""
    low, high = view.reaches
    low = max([low, *(other.after for other in view.steps if other.after <= step.before)])
    high = min([high, *(other.before for other in view.steps if other.before >= step.after)])
    return low, high


def _both_good(view: View, pair: tuple[int, int]) -> NextProbe | None:
    """Return a rerun of a bound where none was bad: a flaky failure would have to show at one of them."""
    for bound in pair:
        missing = view.search.options.bound_runs - view.at(bound).good
        if view.label(bound) is SearchVerdict.GOOD and missing > 0:
            return _again(view, bound, missing)
    return None


def _sample(view: View) -> NextProbe | None:
    """Return the widest untried gap's middle until enough were tried."""
    low, high = view.reaches
    tried = [position for position in view.tallies if low <= position <= high]
    # what was known before may lie close together, so its number alone does not say that the range was looked at
    as_wide = math.ceil((high - low) / 2 ** int(math.log2(view.samples + 1)))
    middle = bracket.widest_gap(tried, low, high, wider_than=1 if len(tried) - 2 < view.samples else as_wide)
    return None if middle is None else NextProbe(position=middle, purpose=Purpose.SAMPLE)


def _doubtful(view: View) -> NextProbe | None:
    """Return a rerun where several changes hang on few runs: one of them may be a flake."""
    steps = view.steps
    if len(steps) < 2:
        return None
    labelled = view.labelled
    edges = [labelled[0], *(step.after for step in steps), view.search.size]
    for first, after in pairwise(edges):
        alike = [position for position in labelled if first <= position < after]
        missing = view.search.options.bound_runs - sum(view.at(p).good + view.at(p).bad for p in alike)
        if missing > 0:
            return _again(view, alike[len(alike) // 2], missing)
    return None


def _again(view: View, position: int, runs: int) -> NextProbe:
    """Return a rerun that ends as soon as it contradicts: that alone switches to the flaky model."""
    other = SearchVerdict.GOOD if view.label(position) is SearchVerdict.BAD else SearchVerdict.BAD
    return NextProbe(position=position, runs=runs, until=other, purpose=Purpose.CONFIRM)


def _narrow(view: View, step: Transition) -> NextProbe | Bracket:
    """Return the next probe inside a step, or the boundary once nothing is left to try."""
    costs = view.search.costs
    install = max(costs.install, default=0.0)  # of any: which ones happen to be installed must not move the probe
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
        missing = view.search.options.confirm_runs - view.at(end).good - view.at(end).bad
        if missing > 0:
            return _again(view, end, missing)
    posterior = view.posterior(step.change, *_surroundings(view, step), flaky=False)
    confidence = view.confidence(step, posterior)
    if confidence < view.search.options.confidence:
        mirrored = {view.mirror(end, step.change) for end in pair}
        others = set(range(posterior.low, posterior.high + 1)) - mirrored
        batch = best_batch(posterior, install=lambda _: 0.0, good=costs.good, bad=costs.bad, closed=others)
        if batch:
            return _again(view, view.mirror(batch.position, step.change), batch.runs)
    return view.boundary(step, confidence)


def _unseen(view: View, find: Find) -> list[str]:
    """Return what a bound that cannot be tested leaves open: beyond what was tried there may be other changes."""
    if find is Find.ALL:
        return []
    low, high = view.search.bounds
    first, last = view.labelled[0], view.labelled[-1]
    ends = ((low, first, "before"), (high, last, "after"))
    return [
        f"{view.name(end)} could not be tested, and what is {side} {view.name(tried)} was not: "
        "other changes there would not show; --find all looks for them"
        for end, tried, side in ends
        if not view.is_labelled(end) and abs(end - tried) > 1
    ]


def _none(view: View) -> SearchAnswer:
    """Return that nothing changes; inconclusive where the newest could not be tested, for there it may have."""
    labelled, (low, high) = view.labelled, view.search.bounds
    seen = "bad" if SearchVerdict.BAD in {view.label(position) for position in labelled} else "good"
    tested = f"{len(labelled)} positions were tested"
    if labelled[-1] < high:
        reason = f"{tested}, none of them newer than {view.name(labelled[-1])}: all are {seen}"
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=(reason,))
    older = "both bounds among them" if labelled[0] <= low else f"none of them older than {view.name(labelled[0])}"
    reason = f"{tested}, {older}: all are {seen}"
    hint = () if seen == "bad" else ("a failure that shows rarely may have been missed: search for a flaky one",)
    return SearchAnswer(kind=AnswerKind.NONE, reasons=(reason, *hint))


def _describe(view: View) -> list[str]:
    return [f"a {step.change} between {view.name(step.before)} and {view.name(step.after)}" for step in view.steps]
