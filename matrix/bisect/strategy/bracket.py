"""Where to probe inside a bracket, with untestable blocks in the way.

A bracket is a pair of positions (before, after) with different labels; "dead" positions between them were tried
and say nothing. Jumping away from a block by doubling and then searching its edge: 13.1 probes on average
(`nox -s bench -- search-block`) for a block of 32 in 128, against 21.7 for git bisect, which skips at random.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from matrix.bisect.strategy.batches import entropy

if TYPE_CHECKING:
    from collections.abc import Sequence

LOPSIDED = 2.0  # how much dearer a bad probe must be than a good one before the midpoint is given up
SHORT = 128  # brackets up to this long are split by dynamic programming, longer ones by the limit of it
COARSENESS = 5  # a gap in a block is tried where it is more than this part of the block


def blocks(dead: Sequence[int]) -> list[tuple[int, int]]:
    """Merge sorted dead positions into blocks: those no farther apart than the larger of the two is long.

    That is how far a jump by doubling goes, so what a jump left out counts as part of the block.
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
    """Return the part of a bracket of `length` to stake on a bad result: below a half where that is dear.

    In the limit, with p for that part, bits per second are h(p) / (p bad + (1 - p) good), most where
    p = x^bad and 1 - p = x^good for some x (a code for letters of unequal cost, Krause 1962).
    """
    if cost_good <= 0 or cost_bad < LOPSIDED * cost_good:
        return 0.5
    if length <= SHORT:
        return _stakes(cost_bad / cost_good)[length] / length
    low, high = 0.0, 0.5
    for _ in range(40):
        share = (low + high) / 2
        if (1 - share) ** (cost_bad / cost_good) > share:
            low = share
        else:
            high = share
    return low


@lru_cache(maxsize=32)
def _stakes(ratio: float) -> list[int]:
    """Return, by length, how many of a bracket's culprits to stake on a bad result that costs `ratio` good ones."""
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
    """Return the position to probe next, or None where all of the bracket is tried or inside a block.

    `share` is the part of the bracket to leave before the probe.
    """
    if after - before < 2:
        return None
    # rounding down keeps bisection within ceil(log2) probes and leaves neither side empty
    middle = min(max(before + int((after - before) * share + 1e-9), before + 1), after - 1)
    walls = blocks(dead)
    index = next((i for i, (first, last) in enumerate(walls) if first <= middle <= last), None)
    if index is None:
        return middle
    first, last = walls[index]
    previous = walls[index - 1][1] if index else before
    following = walls[index + 1][0] if index + 1 < len(walls) else after
    jumps = []
    if following - last > 1:
        jumps.append(last + max(1, min(last - first + 1, (following - last) // 2)))
    if first - previous > 1:
        jumps.append(first - max(1, min(last - first + 1, (first - previous) // 2)))
    if jumps:
        return max(jumps, key=lambda jump: entropy((jump - before) / (after - before)))
    open_ones = [x for x in range(before + 1, after) if not any(a <= x <= b for a, b in walls)]
    return min(open_ones, key=lambda x: abs(x - middle)) if open_ones else None


def next_check(dead: Sequence[int]) -> int | None:
    """Return the middle of the widest gap in a block that is wide for its block, or None.

    Without these a hole or two, each alone, could pass for a block with testable versions inside.
    """
    widest: tuple[int, int] | None = None
    for first, last in blocks(dead):
        inside = [position for position in dead if first <= position <= last]
        for one, other in pairwise(inside):
            gap = other - one - 1
            if gap > (last - first + 1) / COARSENESS and (widest is None or gap > widest[0]):
                widest = gap, (one + other) // 2
    return widest[1] if widest else None


def widest_gap(positions: Sequence[int], low: int, high: int, wider_than: int = 1) -> int | None:
    """Return the middle of the widest gap between tried positions within low..high, or None."""
    edges = [low - 1, *(p for p in positions if low <= p <= high), high + 1]
    gap, middle = max(((b - a, (a + b) // 2) for a, b in pairwise(edges)), key=lambda pair: pair[0])
    return middle if gap > wider_than else None


def step_away(position: int, before: int, after: int, dead: Sequence[int]) -> int:
    """Move a position between two tried ones away from a block, as far as a jump by doubling would go."""
    for first, last in blocks(dead):
        reach = last - first + 1
        if last < position < last + min(reach, (after - last) // 2):
            return last + min(reach, (after - last) // 2)
        if first - min(reach, (first - before) // 2) < position < first:
            return first - min(reach, (first - before) // 2)
    return position
