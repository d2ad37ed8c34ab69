"""The flaky search: the next batch is the one with the most information per second, until the confidence is met."""

from __future__ import annotations

from itertools import combinations, pairwise

from whichtorch.matrix.bisect.strategy import bracket
from whichtorch.matrix.bisect.strategy.posterior import Posterior, best_batch
from whichtorch.matrix.bisect.strategy.search_state import (
    AnswerKind,
    Change,
    NextProbe,
    Purpose,
    SearchAnswer,
    SearchVerdict,
)
from whichtorch.matrix.bisect.strategy.view import Transition, View, sample, widen_towards

MISFIT = 1e-4  # where the passes of a position are less likely than this, the model of a single change is wrong
DECISIVE = 3.0  # nats by which the other direction must be likelier before it replaces the one asked for


def decide(view: View) -> NextProbe | SearchAnswer:
    """Return the next probe or the answer, once there are two testable bounds."""
    change, posterior = _orient(view)
    options, costs = view.search.options, view.search.costs
    if posterior.all_bad + posterior.none_bad >= options.confidence:
        side = -1 if (posterior.all_bad > posterior.none_bad) == (change is Change.REGRESSION) else 1
        return widen_towards(view, side) or (None if view.has_failed else sample(view)) or _no_change(posterior)
    closed = _closed(view)
    step, confidence = _likeliest(view, change, posterior, closed)
    if step and confidence >= options.confidence:
        boundaries = (view.boundary(step, confidence),)
        if misfits := _passes_too_often(view, step, change):
            names = ", ".join(map(view.name, misfits))
            reason = f"not a single change: {names} passed too often for versions that are bad now and then"
            return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, boundaries=boundaries, reasons=(reason,))
        answer = SearchAnswer(kind=AnswerKind.BOUNDARY, boundaries=boundaries, reasons=_reasons(view, change))
        return _confirm(view, step) or answer
    spent = {position for position in view.tallies if not view.is_open(position)}
    batch = best_batch(
        posterior,
        install=lambda position: costs.install_at(view.mirror(position, change)),
        good=costs.good,
        bad=costs.bad,
        closed={view.mirror(position, change) for position in closed | spent},
    )
    if batch is None:
        return partial(view)
    position = view.mirror(batch.position, change)
    if view.label(position) is None:
        position = _away_from_blocks(view, position)
    purpose = Purpose.CONFIRM if view.label(position) else Purpose.NARROW
    return NextProbe(position=position, runs=batch.runs, until=SearchVerdict.BAD, purpose=purpose)


def partial(view: View) -> SearchAnswer:
    """Return the narrowest bracket that holds the culprit with the confidence asked for. It blames no version."""
    change, posterior = _orient(view)
    labelled = sorted(view.mirror(position, change) for position in view.labelled)
    needed = view.search.options.confidence * (1 - posterior.all_bad - posterior.none_bad)
    pairs = [pair for pair in combinations(labelled, 2) if posterior.between(pair[0] + 1, pair[1]) >= needed]
    narrowest = min(pairs, key=lambda pair: pair[1] - pair[0], default=None)
    boundaries = []
    if narrowest is not None:
        step, confidence = _transition(view, narrowest, change, posterior)
        boundaries.append(view.boundary(step, confidence))
    reasons = ("no version is blamed: the confidence asked for was not reached",)
    return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, boundaries=tuple(boundaries), reasons=reasons)


def _transition(
    view: View, mirrored: tuple[int, int], change: Change, posterior: Posterior
) -> tuple[Transition, float]:
    """Return the transition between two mirrored positions, with its confidence."""
    before, after = sorted(view.mirror(position, change) for position in mirrored)
    step = Transition(before=before, after=after, change=change)
    return step, view.confidence(step, posterior)


def _orient(view: View) -> tuple[Change, Posterior]:
    """Return the direction of the change: the one asked for unless the evidence is clearly against it."""
    low, high = view.reaches
    posteriors = {change: view.posterior(change, low, high, flaky=True) for change in Change}

    def weight(change: Change) -> float:
        is_asked_for = view.search.options.find.value == change.value
        return posteriors[change].log_evidence + (DECISIVE if is_asked_for else 0.0)

    change = Change.FIX if weight(Change.FIX) > weight(Change.REGRESSION) else Change.REGRESSION
    return change, posteriors[change]


def _closed(view: View) -> set[int]:
    """Return the positions in untestable blocks, including the untried ones inside."""
    return {
        position
        for before, after in pairwise([-1, *view.labelled, view.search.size])
        for first, last in bracket.blocks(view.dead(before, after))
        for position in range(first, last + 1)
    }


def _away_from_blocks(view: View, position: int) -> int:
    before = max((other for other in view.labelled if other < position), default=-1)
    after = min((other for other in view.labelled if other > position), default=view.search.size)
    return bracket.step_away(position, before, after, view.dead(before, after))


def _likeliest(view: View, change: Change, posterior: Posterior, closed: set[int]) -> tuple[Transition | None, float]:
    """Return the pair of testable neighbours most likely to have the culprit between them."""
    mirrored = {view.mirror(position, change) for position in closed}
    testable = [position for position in range(posterior.low, posterior.high + 1) if position not in mirrored]
    if len(testable) < 2:
        return None, 0.0
    pair = max(pairwise(testable), key=lambda pair: posterior.between(pair[0] + 1, pair[1]))
    return _transition(view, pair, change, posterior)


def _confirm(view: View, step: Transition) -> NextProbe | None:
    """Return the next probe of the final pair until both have firm runs, and enough of them."""
    for end in (step.before, step.after):
        if view.is_unsettled(end):
            return NextProbe(position=end, purpose=Purpose.SETTLE, firm=True)
        missing = view.missing(end, view.search.options.confirm_runs)
        if missing > 0:
            return NextProbe(position=end, runs=missing, purpose=Purpose.CONFIRM)
    return None


def _passes_too_often(view: View, step: Transition, change: Change) -> list[int]:
    """Return positions on the bad side that passed more often than the failure rate of the others explains."""
    start = max(view.mirror(step.before, change), view.mirror(step.after, change))
    bad_side = {position: runs for position, runs in view.tallies.items() if view.mirror(position, change) >= start}
    fails = sum(runs.bad for runs in bad_side.values())
    passes = sum(runs.good for runs in bad_side.values() if runs.bad)
    pass_rate = (passes + 1) / (fails + passes + 2)  # one more of each: a rate of 1 is never certain
    return [position for position, runs in bad_side.items() if not runs.bad and pass_rate**runs.good < MISFIT]


def _no_change(posterior: Posterior) -> SearchAnswer:
    everywhere = "it fails now and then everywhere: no change explains that"
    nowhere = "no failure was seen in enough runs to expect one"
    return SearchAnswer(
        kind=AnswerKind.NONE, reasons=(everywhere if posterior.all_bad > posterior.none_bad else nowhere,)
    )


def _reasons(view: View, change: Change) -> tuple[str, ...]:
    find = view.search.options.find
    mixed = sum(runs.is_mixed for runs in view.tallies.values())
    flaky = (f"flaky: {mixed} positions passed and failed",) if mixed else ()
    return flaky if find.wants(change) else (*flaky, f"no {find} was found; the runs show a {change} instead")
