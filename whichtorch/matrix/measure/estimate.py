"""What a series of paired differences says: an interval for their center, valid however often one looks at it.

The interval is that of the trimmed mean (Tukey and McLaughlin, Sankhya A 25, 1963), so that a few disturbed runs say
little. The series is looked at after so many rounds as `looks` names, and each look has an equal part of the error that
the whole series may make (Bonferroni's inequality): a decision at any look keeps the error level.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_LOOK = 6  # rounds
GROWTH = 1.5  # of the number of rounds from look to look
TRIMMED = 0.2  # of the differences, at each end
ALPHA = 0.005  # the probability that a series' intervals ever miss the center
ALIKE = 3  # rounds after which numbers that never change are taken for exact ones


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The center of the differences and its interval, on their own scale."""

    center: float
    low: float
    high: float
    rounds: int

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
    if len(set(differences)) == 1 and count >= ALIKE:
        (value,) = set(differences)
        return Estimate(center=value, low=value, high=value, rounds=count)
    if count < FIRST_LOOK:
        return None
    from scipy.stats import mstats

    limits, alpha = (TRIMMED, TRIMMED), ALPHA / len(looks(most))
    low, high = mstats.trimmed_mean_ci(differences, limits, alpha=alpha)
    center = mstats.trimmed_mean(differences, limits)
    return Estimate(center=float(center), low=float(low), high=float(high), rounds=count)
