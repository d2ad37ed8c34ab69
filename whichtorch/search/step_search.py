"""Where along an axis a number changes: which steps are larger than asked, and which changes are gradual.

The search is pure: what compares two positions is given to it. What a series of paired differences says is an interval
for their center, valid however often one looks at it.

The center is their mean without the tenth at each end, and the interval is Student's for it (Tukey and McLaughlin,
Sankhya A 25, 1963): disturbed runs, which are as likely on either side, do no harm. The series is looked at after so
many rounds as `looks` names, and each look has an equal part of the error that the whole series may make (Bonferroni's
inequality): a decision at any look keeps the error level. Before the first look that decides, an estimate is rough: it
tells what to measure next.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from operator import attrgetter
from statistics import NormalDist

from whichtorch.base.errors import UsageError
from whichtorch.model.record import Effect

FIRST_LOOK = 4  # rounds: with fewer, chance may put all disturbed runs on one side
TRIMMED = 0.1  # of the differences at each end: the most disturbed rounds
MOST_ROUNDS = 96  # runs of each environment in a comparison
GROWTH = 1.5  # of the number of rounds from look to look
ALPHA = 0.005  # the probability that a series' intervals ever miss the center
ONE_SIGMA = 2 * NormalDist().cdf(-1)  # the probability that a center is more than a standard error away
ALIKE = 3  # rounds after which numbers that never change are taken for exact ones
FINE = 0.25  # of the size that is asked for: an interval this narrow tells a place between two levels
QUIET = 0.125  # of the size: with at most this standard error, three rounds tell which of two levels a place has
COARSE = 0.5  # of the distance of two levels, where that is more than the size: an eighth of it is seen beside it
HOPE = 0.5  # of the margin that is expected after the last round: few rounds do not tell it exactly
ENOUGH = 12  # rounds of a place that seems to have neither of two levels
SURE = 0.97  # the chance of a gap from which on its two positions are compared with each other
MOST_SAID = 6.0  # how much of a log-likelihood one comparison may add: an outlier must not decide
QUESTIONS = 6  # for each halving of a range
TRIES = 2  # gaps that are refuted, after which where the step is is not known


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
        import scipy.special  # noqa: F401  an extra brings it
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
    import numpy as np
    from scipy.special import stdtrit  # without `scipy.stats`, which takes a second to import

    ordered = np.sort(differences)
    cut = int(count * TRIMMED)
    winsorized = np.clip(ordered, ordered[cut], ordered[-1 - cut])
    if winsorized[0] == winsorized[-1]:  # too many are the same
        cut, winsorized = 0, ordered
    center = float(ordered[cut : count - cut].mean())
    # the standard error of a trimmed mean (Tukey and McLaughlin, 1963), and of the mean where nothing is cut
    error = winsorized.std(ddof=1) / ((1 - 2 * TRIMMED if cut else 1.0) * math.sqrt(count))
    margin, likely = (
        float(error * stdtrit(count - 2 * cut - 1, 1 - alpha / 2)) for alpha in (ALPHA / len(looks(most)), ONE_SIGMA)
    )
    return Estimate(center=center, low=center - margin, high=center + margin, rounds=count, error=likely)


# compares a position with another until the estimate of the difference is enough; or returns one that has no number
Comparing = Callable[[int, int, Callable[[Estimate], bool]], Estimate | int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How large a difference must be, on the scale of the differences, where positive is worse.

    An estimate is a change if its interval lies beyond half of the size and is not all below the size. So a change of
    exactly the size is found, and no change at all is not taken for one.
    """

    size: float
    slack: float = 1e-6  # share of the size that a change may fall short of it: a little for rounding
    either_way: bool = False  # a change counts in whichever direction

    def effect(self, estimate: Estimate) -> Effect:
        """Return what an estimate says."""
        if estimate.is_rough:
            return Effect.UNDECIDED
        within = self.size * (1 - self.slack)
        if -within < estimate.low and estimate.high < within:
            return Effect.SAME
        return self._beyond(self.size / 2, estimate)

    def last_effect(self, estimate: Estimate) -> Effect:
        """Return what an estimate says if no more rounds are made: an interval without zero is a change, too."""
        effect = self.effect(estimate)
        return self._beyond(0.0, estimate) if effect is Effect.UNDECIDED and not estimate.is_rough else effect

    def is_decided(self, estimate: Estimate) -> bool:
        """Return whether no more rounds are needed, or none that there is time for would help."""
        margin, distance = HOPE * estimate.last_margin, abs(estimate.center)
        is_hopeless = not estimate.is_rough and distance <= margin and self.size - distance <= margin
        return is_hopeless or self.effect(estimate) is not Effect.UNDECIDED

    def _beyond(self, size: float, estimate: Estimate) -> Effect:
        """Return the direction of a change of more than a size, UNDECIDED if it may be less."""
        if -size <= estimate.high and estimate.low <= size:
            return Effect.UNDECIDED
        if self.either_way:
            return Effect.DIFFERENT
        return Effect.WORSE if estimate.low > size else Effect.BETTER


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberStep:
    """Two neighbors between which the number changes."""

    before: int
    after: int
    estimate: Estimate  # of the difference
    effect: Effect


@dataclass(slots=True)
class StepSearch:
    """A search among positions; what it finds is in its fields."""

    size: int  # number of positions
    compare: Comparing
    threshold: Threshold
    levels: dict[int, Estimate] = field(default_factory=dict)  # by position: the difference from the first that works
    comparisons: Counter[int] = field(default_factory=Counter)  # by position: with the first that works
    steps: list[NumberStep] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)  # positions without a number
    ends: tuple[int, int] | None = None  # the two that the others lie between
    alike: list[tuple[int, int]] = field(
        default_factory=list
    )  # pairs whose levels differ, between which no step was found

    def run(self) -> Effect:
        """Search; return how the last position compares with the first."""
        low, high = 0, self.size - 1
        while low < high:
            between = self.compare(low, high, self._is_decided)
            if isinstance(between, Estimate):
                break
            self.dead.add(between)
            low, high = low + (between == low), high - (between == high)
        else:
            return Effect.UNDECIDED
        self.ends = low, high
        self.levels = {low: Estimate(center=0, low=0, high=0, rounds=0), high: between}
        effect = self.threshold.last_effect(between)
        if effect.counts:
            self._explore(low, high)
        return effect

    @property
    def is_open(self) -> bool:
        """Whether it is not known if the first and the last position differ."""
        return self.ends is None or self.threshold.last_effect(self.levels[self.ends[1]]) is Effect.UNDECIDED

    def _explore(self, before: int, after: int) -> None:
        """Find the steps between two positions whose levels differ.

        As long as each position has the level of one of the two ends, there is one step. It is searched as with answers
        that may be wrong (Horstein, IEEE Transactions on Information Theory 9, 1963): a few rounds each of the position
        that halves what is likely, until one gap is likely enough.
        """
        assert self.ends is not None
        left, refuted = QUESTIONS * (after - before).bit_length(), list[tuple[int, int]]()
        while len(refuted) < TRIES:
            places = [each for each in range(before, after + 1) if each not in self.dead or each in {before, after}]
            chances = self._chances(places, refuted)
            gap = max(chances, key=lambda each: chances[each], default=None)
            if gap is None:
                break
            if chances[gap] >= SURE or left == 0 or self.ends[0] in self.dead:
                if self._is_confirmed(*gap):
                    self._explore_beside((before, gap[0]), (gap[1], after))
                    return
                refuted.append(gap)
                continue
            left -= 1
            middle = min(places[1:-1], key=lambda each: abs(_chance_before(each, chances) - 0.5))
            if self._is_measured(middle, before, after) and self._is_between(middle, before, after):
                for first, last in ((before, middle), (middle, after)):
                    if abs(self._level(last) - self._level(first)) >= self.threshold.size / 2:
                        self._explore(first, last)
                return
        self.alike += refuted or [(before, after)]

    def _chances(self, places: Sequence[int], refuted: Sequence[tuple[int, int]]) -> dict[tuple[int, int], float]:
        """Return how likely the step lies in each gap between places, if there is one step."""
        known = [each for each in places[1:-1] if each in self.levels]
        said = {each: self._said(each, places[0], places[-1]) for each in known}
        logs = {gap: sum(said[each][each > gap[0]] for each in known) for gap in pairwise(places) if gap not in refuted}
        most = max(logs.values(), default=0.0)
        total = sum(math.exp(each - most) for each in logs.values())
        return {gap: math.exp(each - most) / total for gap, each in logs.items()}

    def _said(self, position: int, first: int, last: int) -> tuple[float, float]:
        """Return log-likelihoods: that a position has the level of the first one, and that it has that of the last."""
        found = self.levels[position]
        error = max(found.error, self._scale(first, last) / 100)
        fits = [-((_distance(found.center, self._level(end)) / error) ** 2) / 2 for end in (first, last)]
        of_first, of_last = (max(fit - max(fits), -MOST_SAID * self.comparisons[position]) for fit in fits)
        return of_first, of_last

    def _is_measured(self, position: int, before: int, after: int) -> bool:
        """Compare a position with the first one in a few rounds more; return whether it has a number."""
        assert self.ends is not None
        size = self._scale(before, after)

        def is_enough(so_far: Estimate) -> bool:
            distance = min(_distance(so_far.center, self._level(end)) for end in (before, after))
            if distance <= FINE * size:
                return not so_far.is_rough or so_far.error <= QUIET * size
            return so_far.rounds >= ENOUGH or so_far.margin < distance - FINE * size

        found = self.compare(self.ends[0], position, is_enough)
        if isinstance(found, int):  # it, or the first one, which fails now and then
            self.dead.add(found)
            return False
        if found.is_rough:  # three numbers may agree by chance
            found = replace(found, error=max(found.error, FINE * size))
        self.levels[position] = min(found, self.levels.get(position, found), key=attrgetter("error"))
        self.comparisons[position] += 1
        return True

    def _is_between(self, position: int, before: int, after: int) -> bool:
        """Return whether a position has neither the level of the one end nor that of the other."""
        found, fine = self.levels[position], FINE * self._scale(before, after)
        least = fine + (found.margin if found.margin >= fine else 0.0)
        return all(_distance(found.center, self._level(end)) > least for end in (before, after))

    def _explore_beside(self, *sides: tuple[int, int]) -> None:
        """Look for more steps on both sides of one, where the levels of its ends say that there are."""
        for first, last in sides:
            found = [self.levels[each] for each in (first, last) if each in self.levels]
            if first < last and len(found) == 2:
                change = abs(found[1].center - found[0].center)
                if change >= self.threshold.size / 2 and change > found[0].margin + found[1].margin:
                    self._explore(first, last)

    def _is_decided(self, estimate: Estimate) -> bool:
        return self.threshold.is_decided(estimate)  # as it is then: what compares may change it

    def _scale(self, before: int, after: int) -> float:
        """Return how large a difference matters between two positions: beside a large step, a small one does not."""
        distance = COARSE * _distance(self._level(after), self._level(before))
        return max(self.threshold.size, distance) if math.isfinite(distance) else self.threshold.size

    def _level(self, position: int) -> float:
        return self.levels[position].center

    def _is_confirmed(self, before: int, after: int) -> bool:
        """Compare two neighbors with each other, in runs of their own; keep the step between them if there is one."""
        found = self.compare(before, after, self._is_decided)
        if isinstance(found, int):  # a script that fails now and then
            self.dead.add(found)
            self.alike.append((before, after))
            return True
        effect = self.threshold.last_effect(found)
        if effect.counts:
            self.steps.append(NumberStep(before=before, after=after, estimate=found, effect=effect))
        return effect.counts


def _distance(level: float, other: float) -> float:
    """Return how far two levels are from each other; outputs with other words than the first are infinitely far."""
    return 0.0 if level == other else abs(level - other)


def _chance_before(position: int, chances: Mapping[tuple[int, int], float]) -> float:
    return sum(chance for (_, last), chance in chances.items() if last <= position)
