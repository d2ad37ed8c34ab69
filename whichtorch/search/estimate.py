"""What a series of paired differences says: an interval for their center, valid however often one looks at it.

The center is their mean without the tenth at each end, and the interval is Student's for it (Tukey and McLaughlin,
Sankhya A 25, 1963): disturbed runs, which are as likely on either side, do no harm. The series is looked at after so
many rounds as `looks` names, and each look has an equal part of the error that the whole series may make (Bonferroni's
inequality): a decision at any look keeps the error level. Before the first look that decides, an estimate is rough: it
tells what to measure next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from whichtorch.base.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_LOOK = 4  # rounds: with fewer, chance may put all disturbed runs on one side
TRIMMED = 0.1  # of the differences at each end: the most disturbed rounds
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
    most: int = MOST_ROUNDS  # rounds that the series may have: there is no time for more

    @property
    def is_rough(self) -> bool:
        """Whether it is from too few rounds to decide anything."""
        return self.error > 0 and self.rounds < FIRST_LOOK

    @property
    def margin(self) -> float:
        """Half the width of the interval."""
        return (self.high - self.low) / 2

    @property
    def last_margin(self) -> float:
        """Half the width that the interval is likely to have after the last round."""
        return (
            NormalDist().inv_cdf(1 - ALPHA / 2 / len(looks(self.most)))
            * self.error
            * math.sqrt(min(1.0, self.rounds / self.most))
        )


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
    if not all(map(math.isfinite, differences)):  # of outputs whose words differ now and then
        return None
    from scipy.stats import mstats, ttest_1samp  # it takes a second

    def interval(alpha: float) -> tuple[float, float]:
        """Return that of all differences where there are few, or those that are left are all the same."""
        low, high = mstats.trimmed_mean_ci(differences, (TRIMMED, TRIMMED), alpha=alpha)
        is_whole = count * TRIMMED < 1 or low == high
        low, high = ttest_1samp(differences, 0).confidence_interval(1 - alpha) if is_whole else (low, high)
        return float(low), float(high)

    (low, high), likely = interval(ALPHA / len(looks(most))), interval(ONE_SIGMA)
    error = (likely[1] - likely[0]) / 2
    return Estimate(center=(low + high) / 2, low=low, high=high, rounds=count, error=error)
