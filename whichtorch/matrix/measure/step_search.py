"""Where along an axis a number changes: which steps are larger than asked, and which changes are gradual.

The search is pure: what compares two positions is given to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from whichtorch.matrix.measure.estimate import Estimate
from whichtorch.matrix.model.measurement import Effect

# compares a position with another until the estimate of the difference is enough; or returns one that has no number
Comparing = Callable[[int, int, Callable[[Estimate], bool]], Estimate | int]
FINE = 0.25  # of the size that is asked for: an interval this narrow tells a place between two levels


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How large a difference must be, on the scale of the differences, where positive is worse.

    An estimate is a change if its interval lies beyond half of the size and is not all below the size. So a change of
    exactly the size is found, and no change at all is not taken for one.
    """

    size: float
    either_way: bool = False  # a change counts in whichever direction

    def effect(self, estimate: Estimate) -> Effect:
        """Return what an estimate says."""
        within = self.size * (1 - 1e-6)  # a difference that rounding made a little smaller than the size is as large
        if -within < estimate.low and estimate.high < within:
            return Effect.SAME
        return self._beyond(self.size / 2, estimate)

    def last_effect(self, estimate: Estimate) -> Effect:
        """Return what an estimate says if no more rounds are made: an interval without zero is a change, too."""
        effect = self.effect(estimate)
        return self._beyond(0.0, estimate) if effect is Effect.UNDECIDED else effect

    def is_decided(self, estimate: Estimate) -> bool:
        """Return whether no more rounds are needed."""
        return self.effect(estimate) is not Effect.UNDECIDED

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
    steps: list[NumberStep] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)  # positions without a number
    ends: tuple[int, int] | None = None  # the two that the others lie between
    alike: list[tuple[int, int]] = field(
        default_factory=list
    )  # neighbors whose levels differ, but that could not be told apart when compared

    def run(self) -> Effect:
        """Search; return how the last position compares with the first."""
        low, high = 0, self.size - 1
        while low < high:
            between = self.compare(low, high, self.threshold.is_decided)
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
        """Find the steps between two positions whose levels differ."""
        middle = self._measured_between(before, after)
        if middle is None:
            self._confirm(before, after)
            return
        for first, last in ((before, middle), (middle, after)):
            if abs(self._level(last) - self._level(first)) >= self.threshold.size / 2:
                self._explore(first, last)

    def _measured_between(self, before: int, after: int) -> int | None:
        """Measure a position between two others, the one nearest to the middle that can be measured; None if none."""
        assert self.ends is not None
        middle = (before + after) / 2
        cut = (self._level(before) + self._level(after)) / 2

        def is_told(estimate: Estimate) -> bool:
            return not estimate.low <= cut <= estimate.high or estimate.margin < FINE * self.threshold.size

        for position in sorted(range(before + 1, after), key=lambda each: abs(each - middle)):
            if position in self.dead:
                continue
            found = self.compare(self.ends[0], position, is_told)
            if isinstance(found, Estimate):
                self.levels[position] = found
                return position
            self.dead.add(found)
            if found != position:  # the first one, which fails now and then: nothing can be compared with it any more
                break
        return None

    def _level(self, position: int) -> float:
        return self.levels[position].center

    def _confirm(self, before: int, after: int) -> None:
        """Compare two neighbors with each other, in runs of their own, and keep the step between them."""
        found = self.compare(before, after, self.threshold.is_decided)
        if isinstance(found, int):  # a script that fails now and then
            self.dead.add(found)
            self.alike.append((before, after))
            return
        effect = self.threshold.last_effect(found)
        if effect.counts:
            self.steps.append(NumberStep(before=before, after=after, estimate=found, effect=effect))
        else:
            self.alike.append((before, after))
