"""The flaky search: the next batch is the one with the most information per second, until the confidence is met."""

from __future__ import annotations

from itertools import combinations, pairwise

from whichtorch.search.probes import blocks, confirm, sample, step_away, widen_towards
from whichtorch.search.search_state import (
    AnswerKind,
    Bracket,
    Change,
    NextProbe,
    Posterior,
    Purpose,
    SearchAnswer,
    SearchState,
    SearchVerdict,
)

MISFIT = 1e-4  # where the passes of a position are less likely than this, the model of a single change is wrong
DECISIVE = 3.0  # nats by which the other direction must be likelier before it replaces the one asked for


def decide(search: SearchState) -> NextProbe | SearchAnswer:
    """Return the next probe or the answer, once there are two testable bounds."""
    posterior, confidence = _oriented(search), search.options.confidence
    if posterior.all_bad + posterior.none_bad >= confidence:
        side = -1 if (posterior.all_bad > posterior.none_bad) == (posterior.change is Change.REGRESSION) else 1
        return widen_towards(search, side) or (None if search.has_failed else sample(search)) or _no_change(posterior)
    testable = _testable(search)
    likeliest = max(pairwise(testable), key=lambda pair: posterior.between(*pair), default=None)
    if likeliest and posterior.between(*likeliest) >= confidence:
        return _confirmed(search, search.bracket(posterior, *likeliest))
    batch = posterior.best_batch(search.costs, filter(search.is_open, testable))
    if batch is None:
        return narrowest_bracket(search)
    position, runs = batch
    if search.label(position) is None:
        before, after = search.neighbors(position)
        position = step_away(position, before, after, search.dead(before, after))
    purpose = Purpose.CONFIRM if search.label(position) else Purpose.NARROW
    return NextProbe(position=position, runs=runs, until=SearchVerdict.BAD, purpose=purpose)


def narrowest_bracket(search: SearchState) -> SearchAnswer:
    """Return the narrowest bracket that holds the culprit with the confidence asked for. It blames no version."""
    posterior = _oriented(search)
    needed = search.options.confidence * (1 - posterior.all_bad - posterior.none_bad)
    pairs = [pair for pair in combinations(search.labeled, 2) if posterior.between(*pair) >= needed]
    narrowest = sorted(pairs, key=lambda pair: (pair[1] - pair[0], -posterior.between(*pair)))[:1]
    boundaries = tuple(search.bracket(posterior, *pair) for pair in narrowest)
    reasons = ("no version is blamed: the confidence asked for was not reached",)
    return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, boundaries=boundaries, reasons=reasons)


def _confirmed(search: SearchState, found: Bracket) -> NextProbe | SearchAnswer:
    """Return the answer that blames a bracket, once its two sides were run often enough and the model fits."""
    if misfits := _passes_too_often(search, found):
        names = ", ".join(map(search.name, misfits))
        reason = f"not a single change: {names} passed too often for versions that are bad now and then"
        return SearchAnswer(kind=AnswerKind.INCONCLUSIVE, boundaries=(found,), reasons=(reason,))
    find, mixed = search.options.find, sum(runs.is_mixed for runs in search.tallies.values())
    reasons = [f"flaky: {mixed} positions passed and failed"] if mixed else []
    if not find.wants(found.change):
        reasons.append(f"no {find} was found; the runs show a {found.change} instead")
    answer = SearchAnswer(kind=AnswerKind.BOUNDARY, boundaries=(found,), reasons=tuple(reasons))
    return confirm(search, found) or answer


def _oriented(search: SearchState) -> Posterior:
    """Return the posterior of the change asked for, or of the opposite one if the evidence clearly favors that."""

    def weight(posterior: Posterior) -> float:
        is_asked_for = search.options.find.value == posterior.change.value
        return posterior.log_evidence + (DECISIVE if is_asked_for else 0.0)

    changes = (Change.REGRESSION, Change.FIX)
    return max((Posterior.of(search, change, *search.reaches, flaky=True) for change in changes), key=weight)


def _testable(search: SearchState) -> list[int]:
    """Return the positions that are not in an untestable block; the untried ones inside count as part of it."""
    low, high = search.reaches
    untestable = {
        position
        for before, after in pairwise([-1, *search.labeled, search.size])
        for first, last in blocks(search.dead(before, after))
        for position in range(first, last + 1)
    }
    return [position for position in range(low, high + 1) if position not in untestable]


def _passes_too_often(search: SearchState, found: Bracket) -> list[int]:
    """Return positions on the bad side that passed more often than the failure rate of the others explains."""
    is_regression = found.change is Change.REGRESSION
    bad_side = {
        position: runs
        for position, runs in search.tallies.items()
        if (position >= found.after if is_regression else position <= found.before)
    }
    fails = sum(runs.bad for runs in bad_side.values())
    passes = sum(runs.good for runs in bad_side.values() if runs.bad)
    pass_rate = (passes + 1) / (fails + passes + 2)  # one more of each: a rate of 1 is never certain
    return [position for position, runs in bad_side.items() if not runs.bad and pass_rate**runs.good < MISFIT]


def _no_change(posterior: Posterior) -> SearchAnswer:
    everywhere = "it fails now and then wherever it was tried: no change explains that"
    nowhere = "no failure was seen in enough runs to expect one"
    return SearchAnswer(
        kind=AnswerKind.NONE, reasons=(everywhere if posterior.all_bad > posterior.none_bad else nowhere,)
    )
