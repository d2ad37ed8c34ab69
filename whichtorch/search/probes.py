"""The probes that both searches make, the certain and the flaky one: at, beyond and between the bounds, and reruns.

A bound that cannot be tested is replaced. Where the bounds do not differ, the search looks further out.

A bracket is a pair of positions (before, after) with different labels. "Dead" positions between them were tried and
are neither good nor bad. The search jumps away from a block of them by doubling, then looks for the block's edge.
That takes 13.1 probes on average (`nox -s bench -- search-block`) for a block of 32 in 128, against 21.7 for
git bisect, which skips at random.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from whichtorch.search.search_state import SETTLING_RUNS, Change, Find, NextProbe, Purpose, SearchVerdict, entropy

if TYPE_CHECKING:
    from whichtorch.search.search_state import Bracket, SearchState

LOPSIDED = 2.0  # a bad probe must cost this many good ones before the search leaves the midpoint
SHORT = 128  # longest bracket that is split by dynamic programming; longer ones use its limit
HOLE = 2  # positions: if the next one that was tried is farther behind a dead one, the dead one may be a hole
COARSENESS = 5  # a gap is tried where it is wider than the length of its block divided by this

NO_EVIDENCE = {SearchVerdict.DIFFERENT, SearchVerdict.UNTESTABLE}  # labels of positions whose runs decide nothing


def blocks(dead: Sequence[int]) -> list[tuple[int, int]]:
    """Merge sorted dead positions into blocks: two blocks join where their gap is no wider than the larger one.

    A jump by doubling goes that far, so the positions that it leaves out count as part of the block.
    """
    merged: list[tuple[int, int]] = []
    for position in dead:
        merged.append((position, position))
        while len(merged) > 1:
            (first, last), (next_first, next_last) = merged[-2:]
            if next_first - last > max(last - first, next_last - next_first) + 1:
                break
            merged[-2:] = [(first, next_last)]
    return merged


def bad_share(cost_good: float, cost_bad: float, length: int) -> float:
    """Return the part of a bracket of `length` to stake on a bad result: below a half where a bad run is expensive.

    In the limit, with p for that part, the bits per second are h(p) / (p bad + (1 - p) good). They are at their
    maximum where p = x^bad and 1 - p = x^good for some x (a code for letters of unequal cost, Krause 1962).
    """
    if cost_good <= 0 or cost_bad < LOPSIDED * cost_good:
        return 0.5
    ratio = cost_bad / cost_good
    if length <= SHORT:
        return _stakes(ratio)[length] / length
    parts = 2**20
    return bisect_left(range(parts), True, key=lambda part: (1 - part / parts) ** ratio <= part / parts) / parts


@lru_cache(maxsize=32)
def _stakes(ratio: float) -> list[int]:
    """Return, by length of the bracket, how many of its positions to stake on a bad result.

    A bad result costs as much as `ratio` good ones.
    """
    costs, stakes = [0.0, 0.0], [0, 0]
    for length in range(2, SHORT + 1):
        cost, stake = min(
            ((bad * (ratio + costs[bad]) + (length - bad) * (1 + costs[length - bad])) / length, bad)
            for bad in range(1, length // 2 + 1)
        )
        costs.append(cost)
        stakes.append(stake)
    return stakes


def next_probe(before: int, after: int, dead: Sequence[int], share: float = 0.5) -> int | None:
    """Return the position to probe next, or None where all of the bracket was tried or lies inside a block.

    `share` is the part of the bracket that comes before the probe.
    """
    if after - before < 2:
        return None
    # rounding down keeps bisection within ceil(log2) probes and leaves neither side empty
    middle = min(max(before + int((after - before) * share + 1e-9), before + 1), after - 1)
    walls = [(before, before), *blocks(dead), (after, after)]
    index = next((index for index, (first, last) in enumerate(walls) if first <= middle <= last), None)
    if index is None:
        return middle
    (_, previous), (first, last), (following, _) = walls[index - 1 : index + 2]
    jumps = []
    if following - last > 1:
        jumps.append(last + max(1, min(last - first + 1, (following - last) // 2)))
    if first - previous > 1:
        jumps.append(first - max(1, min(last - first + 1, (first - previous) // 2)))
    if jumps:
        return max(jumps, key=lambda jump: entropy((jump - before) / (after - before)))
    untried = [position for position in range(before + 1, after) if not any(a <= position <= b for a, b in walls)]
    return min(untried, key=lambda position: abs(position - middle), default=None)


def next_in_front(before: int, after: int, dead: Sequence[int], side: int, share: float = 0.5) -> int | None:
    """Return the position to probe next where all positions behind the first dead one are likely dead, too.

    `side` is 1 if they lie next to `after`, and -1 if next to `before`. None means that nothing is left to try before
    the first dead one. But that one may be a hole: if the next one that was tried lies far behind it, the middle
    between the two is returned.
    """
    front, behind = list(pairwise([before, *dead, after]))[::side][:2]
    position = next_probe(*front, (), share)
    if position is None and behind[1] - behind[0] > HOLE:
        return sum(behind) // 2
    return position


def next_check(dead: Sequence[int]) -> int | None:
    """Return the middle of the widest gap that is wide for its block, or None.

    Without this check, a few single holes could be taken for a block although versions between them are testable.
    """
    gaps = [
        (after - before - 1, (before + after) // 2)
        for first, last in blocks(dead)
        for before, after in pairwise(position for position in dead if first <= position <= last)
        if after - before - 1 > (last - first + 1) / COARSENESS
    ]
    return max(gaps, key=lambda gap: gap[0])[1] if gaps else None


def widest_gap(positions: Sequence[int], low: int, high: int, wider_than: int = 1) -> int | None:
    """Return the middle of the widest gap between tried positions within low..high, or None."""
    edges = [low - 1, *(position for position in positions if low <= position <= high), high + 1]
    before, after = max(pairwise(edges), key=lambda pair: pair[1] - pair[0])
    return (before + after) // 2 if after - before > wider_than else None


def step_away(position: int, before: int, after: int, dead: Sequence[int]) -> int:
    """Move a position between `before` and `after` away from a block, as far as a jump by doubling would go."""
    for first, last in blocks(dead):
        reach = last - first + 1
        older, newer = first - min(reach, (first - before) // 2), last + min(reach, (after - last) // 2)
        if last < position < newer:
            return newer
        if older < position < first:
            return older
    return position


def check_bounds(search: SearchState) -> NextProbe | tuple[int, int] | None:
    """Return the next probe that the bounds need, or two testable bounds, or None where there are not two.

    A bound that cannot be tested is replaced by a position further out. Where there is none, the range is halved
    as if the bound differed from the other one. If it does, the probe is not wasted; if not, the probe finds the
    edge of the testable positions. The newer edge is found in any case, because the newest change may lie before it,
    and the older one for Find.ALL.
    """
    ends: list[int] = []
    for bound, direction in zip(search.bounds, (-1, 1), strict=True):
        outward = (bound + direction * (2**jumps - 1) for jumps in range(search.size.bit_length() + 1))
        inside = (position for position in outward if 0 <= position < search.size)
        end = next((position for position in inside if search.label(position) not in NO_EVIDENCE), bound)
        if search.label(end) is None:
            return _bound_probe(search, end, Purpose.BOUND if end == bound else Purpose.WIDEN)
        ends.append(end)
    older = not search.steps or search.options.find is Find.ALL
    if probe := find_edge(search, *ends, older=older):
        return probe
    tested = [position for position in search.labeled if ends[0] <= position <= ends[1]]
    if len(tested) < 2:
        return None
    bounds = (tested[0], tested[-1])
    # a bad bound that is known from earlier runs may have had too few of them to say how reliable it is
    return rerun_bound(search, bounds, SearchVerdict.BAD) or bounds


def find_edge(search: SearchState, low: int, high: int, *, older: bool = True) -> NextProbe | None:
    """Return a probe between an untestable end and the nearest testable position, or None at the edge.

    Without `older`, only the newer end counts.
    """
    tested = [position for position in search.labeled if low <= position <= high]
    pairs = [(low, tested[0]), (tested[-1], high)] if tested else [(low, high)]
    pairs = pairs if older else pairs[-1:]
    for before, after in pairs:
        if not (search.is_labeled(before) and search.is_labeled(after)):
            position = next_probe(before, after, search.dead(before - 1, after + 1))
            if position is not None:
                return NextProbe(position=position, purpose=Purpose.WIDEN)
    return None


def widen(search: SearchState) -> NextProbe | None:
    """Return a probe further out, where the bounds do not show the change; None at the ends."""
    probes = (widen_towards(search, direction) for direction in _directions(search))
    return next(filter(None, probes), None)


def widen_towards(search: SearchState, direction: int) -> NextProbe | None:
    """Return a probe further out on one side, by doubling, or None at the end of the range."""
    low, high = search.bounds
    edge, end = (low, 0) if direction < 0 else (high, search.size - 1)
    width = max(1, high - low)
    while edge != end:
        edge = min(max(edge + direction * width, 0), search.size - 1)
        width *= 2
        if search.label(edge) is None:
            return _bound_probe(search, edge, Purpose.WIDEN)
    return None


def sample(search: SearchState) -> NextProbe | None:
    """Return a position to try where the bounds agree, or for Find.ALL; None where enough positions were tried.

    While nothing fails, every position is tried.
    """
    low, high = search.reaches
    positions = [position for position in search.tallies if low <= position <= high]
    wider_than = 1
    if search.has_failed and len(positions) - 2 >= search.samples:
        # positions known from earlier runs may lie close together, so their number alone does not cover the range
        wider_than = math.ceil((high - low) / 2 ** int(math.log2(search.samples + 1)))
    middle = widest_gap(positions, low, high, wider_than)
    return None if middle is None else NextProbe(position=middle, purpose=Purpose.SAMPLE)


def rerun_bound(search: SearchState, bounds: Iterable[int], verdict: SearchVerdict) -> NextProbe | None:
    """Return a rerun of a bound that showed only this verdict, and had fewer runs than a bound gets."""
    for bound in bounds:
        missing = search.missing(bound, search.options.bound_runs)
        if search.label(bound) is verdict and not search.at(bound).is_mixed and missing > 0:
            return rerun(search, bound, missing)
    return None


def rerun(search: SearchState, position: int, runs: int) -> NextProbe:
    """Return a rerun that ends with the first contradiction, because one is enough to switch to the flaky model."""
    label = search.label(position)
    return NextProbe(position=position, runs=runs, until=label and label.opposite, purpose=Purpose.CONFIRM)


def confirm(search: SearchState, step: Bracket) -> NextProbe | None:
    """Return the next rerun of the final pair until both have firm runs, and enough of them."""
    pair, options = (step.before, step.after), search.options
    for end in pair:
        known = search.at(end)
        if known.provisional and known.runs < SETTLING_RUNS and search.is_open(end):  # a longer look may still decide
            return NextProbe(position=end, purpose=Purpose.SETTLE, firm=True)
    for end in pair:
        is_certain_pass = search.label(end) is SearchVerdict.GOOD and not search.is_flaky
        missing = search.missing(end, options.pass_runs if is_certain_pass else options.confirm_runs)
        if missing > 0:
            probe = rerun(search, end, missing)
            return replace(probe, until=None) if search.is_flaky else probe
    return None


def _bound_probe(search: SearchState, position: int, purpose: Purpose) -> NextProbe:
    """Return a probe that runs a good bound once and a bad one several times, so that a flaky failure shows here."""
    return NextProbe(position=position, runs=search.options.bound_runs, until=SearchVerdict.GOOD, purpose=purpose)


def _directions(search: SearchState) -> list[int]:
    """Return on which sides, -1 old and 1 new, the change may still be."""
    find = search.options.find
    labeled = search.labeled
    if find in {Find.ANY, Find.ALL}:
        return [1, -1]  # newer first: whoever has a failure now hopes for a fix
    before, after = Change(find.value).sides
    sides = ((-1, labeled[0], before), (1, labeled[-1], after))
    return [side for side, position, wanted in sides if search.label(position) is not wanted]
