"""The flaky search: the next batch is the one that tells most per second, until the confidence is met."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from matrix.bisect.strategy import bounds, bracket
from matrix.bisect.strategy.batches import best_batch
from matrix.bisect.strategy.evidence import AnswerKind, Change, Find, NextProbe, Purpose, SearchAnswer, SearchVerdict
from matrix.bisect.strategy.view import Transition

if TYPE_CHECKING:
    from matrix.bisect.strategy.posterior import Posterior
    from matrix.bisect.strategy.view import View

MISFIT = 1e-4  # of passes: less likely than that, and the model of a single change is wrong
DECISIVE = 3.0  # how much likelier, in nats, the other direction must be before the one asked for is given up


def decide(view: View) -> NextProbe | SearchAnswer:
    """Return the next probe or the answer."""
    checked = bounds.check_bounds(view)
    if isinstance(checked, NextProbe):
        return checked
    if checked is None:
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=("no two positions could be tested",))
    change, posterior = _orient(view)
    options, costs = view.search.options, view.search.costs
    if posterior.all_bad + posterior.none_bad >= options.confidence:
        side = -1 if (posterior.all_bad > posterior.none_bad) == (change is Change.REGRESSION) else 1
        return bounds.widen_towards(view, side) or _none(posterior)
    closed = _closed(view)
    step, confidence = _likeliest(view, change, posterior, closed)
    refuted = _passes_too_often(view, step, change) if step else []
    if step and confidence >= options.confidence and refuted:
        names = ", ".join(map(view.name, refuted))
        reason = f"not a single change: {names} passed too often for versions that are bad now and then"
        return SearchAnswer(
            kind=AnswerKind.INCONCLUSIVE, boundaries=(view.boundary(step, confidence),), reasons=(reason,)
        )
    if step and confidence >= options.confidence:
        return _confirm(view, step) or SearchAnswer(
            kind=AnswerKind.BOUNDARY, boundaries=(view.boundary(step, confidence),), reasons=_reasons(view, change)
        )
    batch = best_batch(
        posterior,
        install=lambda position: costs.install_at(view.mirror(position, change)),
        good=costs.good,
        bad=costs.bad,
        closed={view.mirror(position, change) for position in closed},
    )
    if batch is None:
        return partial(view)
    position = view.mirror(batch.position, change)
    if view.label(position) is None:
        position = _away_from_blocks(view, position)
    purpose = Purpose.CONFIRM if view.label(position) else Purpose.NARROW
    return NextProbe(position=position, runs=batch.runs, until=SearchVerdict.BAD, purpose=purpose)


def partial(view: View) -> SearchAnswer:
    """Return the narrowest bracket that holds the culprit with the confidence asked for, blaming none."""
    change, posterior = _orient(view)
    labelled = sorted(view.mirror(position, change) for position in view.labelled)
    needed = view.search.options.confidence * (1 - posterior.all_bad - posterior.none_bad)
    best: tuple[int, int] | None = None
    for index, before in enumerate(labelled):
        for after in labelled[index + 1 :]:
            if posterior.between(before + 1, after) >= needed:
                if best is None or after - before < best[1] - best[0]:
                    best = before, after
                break
    reasons = ("no version is blamed: the confidence asked for was not reached",)
    if best is None:
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, reasons=reasons)
    before, after = sorted(view.mirror(position, change) for position in best)
    step = Transition(before=before, after=after, change=change)
    bracketed = view.boundary(step, view.confidence(step, posterior))
    return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, boundaries=(bracketed,), reasons=reasons)


def _orient(view: View) -> tuple[Change, Posterior]:
    """Return the direction of the change: the one asked for unless the evidence is clearly against it."""
    low, high = view.reaches
    find = view.search.options.find
    both = {change: view.posterior(change, low, high, flaky=True) for change in Change}
    asked = {change: DECISIVE if find is not Find.ALL and find.value == change.value else 0.0 for change in Change}
    regression = both[Change.REGRESSION].log_evidence + asked[Change.REGRESSION]
    change = Change.FIX if both[Change.FIX].log_evidence + asked[Change.FIX] > regression else Change.REGRESSION
    return change, both[change]


def _closed(view: View) -> set[int]:
    """Return the positions in untestable blocks, holes of the blocks included."""
    closed: set[int] = set()
    for before, after in pairwise([-1, *view.labelled, view.search.size]):
        for first, last in bracket.blocks(view.dead(before, after)):
            closed.update(range(first, last + 1))
    return closed


def _away_from_blocks(view: View, position: int) -> int:
    before = max((p for p in view.labelled if p < position), default=-1)
    after = min((p for p in view.labelled if p > position), default=view.search.size)
    return bracket.step_away(position, before, after, view.dead(before, after))


def _likeliest(view: View, change: Change, posterior: Posterior, closed: set[int]) -> tuple[Transition | None, float]:
    """Return the pair of testable neighbours most likely to have the culprit between them."""
    mirrored = {view.mirror(position, change) for position in closed}
    testable = [position for position in range(posterior.low, posterior.high + 1) if position not in mirrored]
    if len(testable) < 2:
        return None, 0.0
    pair = max(pairwise(testable), key=lambda pair: posterior.between(pair[0] + 1, pair[1]))
    before, after = sorted(view.mirror(position, change) for position in pair)
    step = Transition(before=before, after=after, change=change)
    return step, view.confidence(step, posterior)


def _confirm(view: View, step: Transition) -> NextProbe | None:
    """Return what the final pair still needs: firm runs, and enough of them."""
    for end in (step.before, step.after):
        seen = view.at(end)
        if seen.provisional:
            return NextProbe(position=end, purpose=Purpose.SETTLE, firm=True)
        missing = view.search.options.confirm_runs - seen.good - seen.bad
        if missing > 0:
            return NextProbe(position=end, runs=missing, purpose=Purpose.CONFIRM)
    return None


def _passes_too_often(view: View, step: Transition, change: Change) -> list[int]:
    """Return positions on the bad side whose runs all passed, which the others' failure rate cannot explain."""
    start = max(view.mirror(step.before, change), view.mirror(step.after, change))
    bad_side = {p: seen for p, seen in view.tallies.items() if view.mirror(p, change) >= start}
    fails = sum(seen.bad for seen in bad_side.values())
    passes = sum(seen.good for seen in bad_side.values() if seen.bad)
    rest = (passes + 1) / (fails + passes + 2)  # one more of each: a rate of 1 is never certain
    return [p for p, seen in bad_side.items() if not seen.bad and rest**seen.good < MISFIT]


def _none(posterior: Posterior) -> SearchAnswer:
    if posterior.all_bad > posterior.none_bad:
        return SearchAnswer(
            kind=AnswerKind.NONE, reasons=("it fails now and then everywhere: no change explains that",)
        )
    return SearchAnswer(kind=AnswerKind.NONE, reasons=("no failure was seen in enough runs to expect one",))


def _reasons(view: View, change: Change) -> tuple[str, ...]:
    find = view.search.options.find
    mixed = sum(seen.is_mixed for seen in view.tallies.values())
    flaky = (f"flaky: {mixed} positions passed and failed",) if mixed else ()
    return flaky if find.wants(change) else (*flaky, f"no {find} was found; the runs show a {change} instead")
