"""From which night on a number has another level: numbers of nights in, change points with size and interval out.

Candidates are the best cuts of the numbers' ranks (ruptures: KernelCPD, exact for its penalty), so that a disturbed
night says no more than that it is the largest. The rank test of Mann and Whitney must confirm each, and the interval
of the shift (Hodges and Lehmann) must say that it counts. What is not confirmed is joined with what is beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate
from statistics import NormalDist, median
from typing import TYPE_CHECKING

from whichtorch.search.estimate import ALPHA, Estimate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.model import Effect
    from whichtorch.search.step_search import Threshold

LEAST = 5  # nights of a level: fewer may be a busy machine
LEVEL = 1e-5  # of the rank test: a year of nights of many cells is looked through
EXACT = 20  # nights of a level up to which the test is exact, if no two numbers are the same
PENALTY = 0.25  # of a cut, for the ranks between 0 and 1, and for each e-fold of nights: 3 times their variance


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A night from which on the level is another one."""

    night: int  # its index
    shift: Estimate  # from the level before, where positive is worse
    effect: Effect


def missing_libraries() -> str:
    """Return why the search cannot be made, "" where it can."""
    try:
        import ruptures  # noqa: F401  they take a second, and an extra brings them
        import scipy.stats  # noqa: F401
    except ImportError:
        return "that needs scipy and ruptures: pip install 'whichtorch[measure]'"
    return ""


def change_points(numbers: Sequence[float], threshold: Threshold) -> list[ChangePoint]:
    """Return where the level of numbers changes by what counts, in order; positive changes are worse."""
    if len(numbers) < 2 * LEAST or len(set(numbers)) == 1:
        return []
    ends, seen = [0, *_cuts(numbers)], set[tuple[int, ...]]()
    while len(ends) > 2:
        tried = [_tested(numbers, *each, threshold) for each in zip(ends, ends[1:], ends[2:], strict=False)]
        worst = max(range(len(tried)), key=lambda place: tried[place][0])
        if tried[worst][0] > LEVEL:
            del ends[worst + 1]
        elif tuple(ends) in seen:
            return [point for _, point in tried]
        else:
            seen.add(tuple(ends))
            ends = _moved(numbers, ends)
    return []


def _moved(numbers: Sequence[float], ends: Sequence[int]) -> list[int]:
    """Return the ends of levels with each cut where the numbers fit best to the medians on both sides.

    Ranks say less of the place: they make small differences of one level large.
    """
    moved = list(ends)
    for place, (before, cut, end) in enumerate(zip(ends, ends[1:], ends[2:], strict=False), 1):
        start = moved[place - 1]  # not crossed
        old, new = median(numbers[before:cut]), median(numbers[cut:end])
        misfits = list(accumulate(abs(number - old) - abs(number - new) for number in numbers[start:end]))
        moved[place] = min(range(start + LEAST, end - LEAST + 1), key=lambda night: misfits[night - start - 1])
    return moved


def _cuts(numbers: Sequence[float]) -> list[int]:
    """Return the ends of the levels that fit the ranks best."""
    from ruptures import KernelCPD
    from scipy.stats import rankdata

    ranks = rankdata(numbers).reshape(-1, 1) / len(numbers)
    search = KernelCPD(kernel="linear", min_size=LEAST, jump=1).fit(ranks)
    return list(map(int, search.predict(pen=PENALTY * math.log(len(numbers)))))


def _tested(
    numbers: Sequence[float], start: int, night: int, end: int, threshold: Threshold
) -> tuple[float, ChangePoint]:
    """Return the change between two levels, and how likely chance makes it: 1 and more where it does not count."""
    from scipy.stats import mannwhitneyu

    before, after = numbers[start:night], numbers[night:end]
    shift = _shift(before, after)
    effect = threshold.effect(shift)
    if not effect.counts:
        chance = 1 + 1 / (1 + abs(shift.center))
    else:
        is_short = min(len(before), len(after)) <= EXACT and len({*before, *after}) == end - start
        chance = float(mannwhitneyu(before, after, method="exact" if is_short else "asymptotic").pvalue)
    return chance, ChangePoint(night=night, shift=shift, effect=effect)


def _shift(before: Sequence[float], after: Sequence[float]) -> Estimate:
    """Return the median of all differences between two groups, and the interval that belongs to the rank test."""
    differences = sorted(new - old for new in after for old in before)
    pairs = len(differences)
    deviation = math.sqrt(pairs * (len(before) + len(after) + 1) / 12)
    outer = max(0, math.floor(pairs / 2 - NormalDist().inv_cdf(1 - ALPHA / 2) * deviation))
    middle = (differences[(pairs - 1) // 2] + differences[pairs // 2]) / 2
    return Estimate(center=middle, low=differences[outer], high=differences[-1 - outer], rounds=pairs)
