"""What a series of paired differences says: an interval for their center, valid however often one looks at it.

The center is the median of all means of two differences (Hodges and Lehmann, Annals of Mathematical Statistics 34,
1963), and the interval holds what Wilcoxon's signed-rank test does not reject. Both need no more than that the
differences scatter as much to the one side as to the other, so that disturbed runs do no harm. The series is looked at
after so many rounds as `looks` names, and each look has an equal part of the error that the whole series may make
(Bonferroni's inequality): a decision at any look keeps the error level. With too few rounds for
a rank test to have that level, an estimate is rough: it tells what to measure next, and decides nothing.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement
from statistics import NormalDist, fmean, median, stdev

from whichtorch.base.errors import UsageError

FIRST_LOOK = 12  # rounds: with fewer, no rank test has the level of a look
MOST_ROUNDS = 96  # runs of each environment in a comparison
GROWTH = 1.5  # of the number of rounds from look to look
ALPHA = 0.005  # the probability that a series' intervals ever miss the center
ONE_SIGMA = 2 * NormalDist().cdf(-1)  # the probability that a center is more than a standard error away
ALIKE = 3  # rounds after which numbers that never change are taken for exact ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The center of the differences and its interval, on their own scale."""

    center: float
    low: float
    high: float
    rounds: int
    error: float = 0.0  # standard error of the center; 0 of an exact one
    is_rough: bool = False  # from too few rounds for a rank test: its interval holds for normal noise only

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2


def check_statistics() -> None:
    """Raise UsageError where the library for the intervals is not installed."""
    try:
        import scipy.stats  # noqa: F401  it takes a second, and an extra brings it
    except ImportError:
        hint = "install it: pip install 'whichtorch[measure]'"
        raise UsageError("measuring needs scipy, which is not installed", hint=hint) from None


def looks(most: int) -> tuple[int, ...]:
    """Return after how many rounds a series of at most so many is looked at."""
    counts = [ALIKE, FIRST_LOOK]
    while counts[-1] < most:
        counts.append(min(most, math.ceil(counts[-1] * GROWTH)))
    return tuple(count for count in counts if count <= most)


def estimate(differences: Sequence[float], most: int) -> Estimate | None:
    """Return the estimate of a series of at most `most` differences; None where there are too few for one."""
    count = len(differences)
    if count < ALIKE:
        return None
    if len(set(differences)) == 1:
        (value,) = set(differences)
        return Estimate(center=value, low=value, high=value, rounds=count)
    if count < FIRST_LOOK:
        return _rough(differences, most) if all(map(math.isfinite, differences)) else None
    means = sorted(sum(pair) / 2 for pair in combinations_with_replacement(differences, 2))
    left_out, likely = _rejected(count, ALPHA / len(looks(most))), _rejected(count, ONE_SIGMA)
    return Estimate(
        center=median(means),
        low=means[left_out],
        high=means[-1 - left_out],
        rounds=count,
        error=(means[-1 - likely] - means[likely]) / 2,
    )


def _rough(differences: Sequence[float], most: int) -> Estimate:
    """Return the mean of a few differences, with Student's interval."""
    from scipy.stats import t  # it takes a second

    count, center = len(differences), fmean(differences)
    error = stdev(differences, center) / math.sqrt(count)
    margin = error * float(t.ppf(1 - ALPHA / 2 / len(looks(most)), count - 1))
    return Estimate(center=center, low=center - margin, high=center + margin, rounds=count, error=error, is_rough=True)


def pooled(series: Estimate, other: Estimate) -> Estimate:
    """Return the estimate of two series of the same differences."""
    if not (series.error and other.error):
        return other if series.error else series
    weight, other_weight = series.error**-2, other.error**-2
    total = weight + other_weight
    center, error = (series.center * weight + other.center * other_weight) / total, total**-0.5
    margin = error * NormalDist().inv_cdf(1 - ALPHA / 2 / len(looks(series.rounds + other.rounds)))
    return Estimate(
        center=center,
        low=center - margin,
        high=center + margin,
        rounds=series.rounds + other.rounds,
        error=error,
        is_rough=series.is_rough and other.is_rough and series.rounds + other.rounds < FIRST_LOOK,
    )


@lru_cache
def _rejected(count: int, alpha: float) -> int:
    """Return how many of the ordered means the test rejects at each end.

    That is the largest sum of ranks whose p-value is at most alpha, plus one; 0 if even a sum of zero is likely.
    """
    from scipy.stats import wilcoxon  # it takes a second

    def is_rejected(total: int) -> bool:
        ranks, left = [], total
        for rank in range(count, 0, -1):
            ranks.append(rank if rank <= left else -rank)
            left -= rank if rank <= left else 0
        return bool(wilcoxon(ranks, method="exact").pvalue <= alpha)

    return bisect_left(range(count * (count + 1) // 4), True, key=lambda total: not is_rejected(total))
