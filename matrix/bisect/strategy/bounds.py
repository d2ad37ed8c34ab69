"""The bounds: check them, replace those that cannot be tested, and look further out where they do not differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.bisect.strategy import bracket
from matrix.bisect.strategy.evidence import Change, Find, NextProbe, Purpose, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.bisect.strategy.view import View


def check_bounds(view: View) -> NextProbe | tuple[int, int] | None:
    """Return the next probe that the bounds need, or the two testable ones; None where there are not two.

    A bound that cannot be tested is replaced by one further out. Where there is none, the range is halved as
    if the bound were unlike the other one: if it is, that costs nothing, and if not, its edge is found. Who asks
    for all changes gets the edge in any case: there may be one before it.
    """
    low, high = view.search.bounds
    ends: list[int] = []
    for bound, outward in ((low, -1), (high, 1)):
        for position in _outward(bound, outward, view.search.size):
            if view.label(position) is None:
                return _probe(view, position, Purpose.BOUND if position == bound else Purpose.WIDEN)
            if view.is_labelled(position):
                ends.append(position)
                break
        else:
            ends.append(bound)
    if not view.steps or view.search.options.find is Find.ALL:
        probe = _towards_dead_bound(view, *ends)
        if probe:
            return probe
    tested = [position for position in view.labelled if ends[0] <= position <= ends[1]]
    if len(tested) < 2:
        return None
    for position in (tested[0], tested[-1]):
        seen = view.at(position)
        missing = view.search.options.bound_runs - seen.bad
        if seen.bad and not seen.good and missing > 0:  # known from elsewhere, but not how reliably
            return NextProbe(position=position, runs=missing, until=SearchVerdict.GOOD, purpose=Purpose.CONFIRM)
    return tested[0], tested[-1]


def _towards_dead_bound(view: View, low: int, high: int) -> NextProbe | None:
    """Return a probe between a bound that cannot be tested and the nearest position that can; None at the edge."""
    tested = [position for position in view.labelled if low <= position <= high]
    pairs = [(low, tested[0]), (tested[-1], high)] if tested else [(low, high)]
    for before, after in pairs:
        is_dead = not (view.is_labelled(before) and view.is_labelled(after))
        dead = [position for position in view.tallies if before <= position <= after and not view.is_labelled(position)]
        position = bracket.next_probe(before, after, dead) if is_dead else None
        if position is not None:
            return _probe(view, position, Purpose.WIDEN)
    return None


def find_edge(view: View) -> NextProbe | None:
    """Return a probe between the outermost testable position and the untestable ones beyond it."""
    first, last = view.labelled[0], view.labelled[-1]
    before = max((position for position in view.tallies if position < first), default=first)
    after = min((position for position in view.tallies if position > last), default=last)
    for one, other in ((before, first), (last, after)):
        if other - one > 1:
            return _probe(view, (one + other) // 2, Purpose.WIDEN)
    return None


def widen(view: View) -> NextProbe | None:
    """Return a probe further out, by doubling, where the bounds do not show what is asked; None at the ends."""
    low, high = view.search.bounds
    for outward in _directions(view):
        edge = low if outward < 0 else high
        width = max(1, high - low)
        while (outward < 0 and edge > 0) or (outward > 0 and edge < view.search.size - 1):
            edge = min(max(edge + outward * width, 0), view.search.size - 1)
            width *= 2
            if view.label(edge) is None:
                return _probe(view, edge, Purpose.WIDEN)
    return None


def widen_towards(view: View, outward: int) -> NextProbe | None:
    """Return a probe beyond all that was tried on one side, twice as far out; None at the end of the range."""
    low, high = view.reaches
    edge = low if outward < 0 else high
    further = min(max(edge + outward * max(1, high - low), 0), view.search.size - 1)
    return _probe(view, further, Purpose.WIDEN) if view.label(further) is None else None


def _probe(view: View, position: int, purpose: Purpose) -> NextProbe:
    """Return a probe that runs a good bound once, a bad one several times: a flaky one would show here first."""
    return NextProbe(position=position, runs=view.search.options.bound_runs, until=SearchVerdict.GOOD, purpose=purpose)


def _outward(bound: int, direction: int, size: int) -> Iterator[int]:
    """Yield the bound, then others beyond it, by doubling, to the end of the range."""
    position, jump = bound, 1
    while 0 <= position < size:
        yield position
        position += direction * jump
        jump *= 2


def _directions(view: View) -> list[int]:
    """Return on which sides, -1 old and 1 new, what is asked for may yet be found."""
    find = view.search.options.find
    labelled = view.labelled
    oldest, newest = view.label(labelled[0]), view.label(labelled[-1])
    if find in {Find.ANY, Find.ALL}:
        return [1, -1]  # newer first: whoever has a failure now hopes for a fix
    before, after = Change(find.value).sides
    return [side for side, label, wanted in ((-1, oldest, before), (1, newest, after)) if label is not wanted]
