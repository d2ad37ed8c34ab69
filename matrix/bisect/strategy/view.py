"""What a decision looks at: the labels that the observations give, and what can be said about a pair."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from matrix.bisect.strategy.evidence import Bracket, Change, Search, SearchVerdict, Tally, tally
from matrix.bisect.strategy.posterior import Posterior, RunCounts

if TYPE_CHECKING:
    from collections.abc import Iterable

NO_RUNS = Tally()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Two labelled positions with different labels and no labelled one between."""

    before: int
    after: int
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A search and its observations, counted."""

    search: Search
    tallies: dict[int, Tally]

    @classmethod
    def of(cls, search: Search) -> View:
        """Count the observations of a search."""
        return cls(search=search, tallies=tally(search.observations))

    @property
    def labelled(self) -> list[int]:
        """Positions known good or bad, in order."""
        return [p for p, seen in self.tallies.items() if seen.label in {SearchVerdict.GOOD, SearchVerdict.BAD}]

    def name(self, position: int) -> str:
        """Return what people call a position."""
        return self.search.names[position] if self.search.names else str(position)

    def label(self, position: int) -> SearchVerdict | None:
        """Return what is known of a position; None where it was not tried."""
        seen = self.tallies.get(position)
        return seen.label if seen else None

    def is_labelled(self, position: int) -> bool:
        """Return True where a position is known good or bad."""
        return self.label(position) in {SearchVerdict.GOOD, SearchVerdict.BAD}

    def at(self, position: int) -> Tally:
        """Return the counts of a position."""
        return self.tallies.get(position, NO_RUNS)

    def dead(self, before: int, after: int) -> list[int]:
        """Return what was tried between two positions and says nothing: untestable or different."""
        return [p for p in self.tallies if before < p < after and not self.is_labelled(p)]

    @property
    def steps(self) -> list[Transition]:
        """Every change between neighbouring labels, in order."""
        return [
            Transition(
                before=a, after=b, change=Change.REGRESSION if self.label(b) is SearchVerdict.BAD else Change.FIX
            )
            for a, b in pairwise(self.labelled)
            if self.label(a) != self.label(b)
        ]

    @property
    def is_mixed(self) -> bool:
        """True where some position passed and failed."""
        return any(seen.is_mixed for seen in self.tallies.values())

    @property
    def reaches(self) -> tuple[int, int]:
        """The bounds, or what was tried outside them to repair them."""
        low, high = self.search.bounds
        return min([low, *self.labelled]), max([high, *self.labelled])

    @property
    def is_spent(self) -> bool:
        """True where the budget is used up."""
        options = self.search.options
        runs = sum(seen.good + seen.bad for seen in self.tallies.values())
        positions = options.max_positions
        return runs >= options.max_runs or (positions is not None and len(self.tallies) >= positions)

    @property
    def samples(self) -> int:
        """How many positions to try between bounds that agree, or for `all`."""
        low, high = self.reaches
        wanted = self.search.options.samples
        return math.ceil(math.log2(max(2, high - low + 1))) if wanted is None else wanted

    def mirror(self, position: int, change: Change) -> int:
        """Turn a position so that bad is on the right, or back."""
        return position if change is Change.REGRESSION else self.search.size - 1 - position

    def posterior(self, change: Change, low: int, high: int, *, flaky: bool) -> Posterior:
        """Return the posterior of a single change within low..high, in mirrored positions."""
        runs = {
            self.mirror(p, change): RunCounts(seen.good, seen.bad)
            for p, seen in self.tallies.items()
            if low <= p <= high and (seen.good or seen.bad)
        }
        ends = sorted((self.mirror(low, change), self.mirror(high, change)))
        return Posterior(ends[0], ends[1], runs, flaky=flaky)

    def confidence(self, step: Transition, posterior: Posterior) -> float:
        """Return the probability that the culprit is after `before` and not after `after`."""
        before, after = sorted((self.mirror(step.before, step.change), self.mirror(step.after, step.change)))
        return posterior.between(before + 1, after)

    def boundary(self, step: Transition, confidence: float) -> Bracket:
        """Describe a step with what lies between."""
        between = range(step.before + 1, step.after)
        return Bracket(
            before=step.before,
            after=step.after,
            change=step.change,
            confidence=confidence,
            untestable_between=tuple(_with(self, between, SearchVerdict.UNTESTABLE)),
            different_between=tuple(_with(self, between, SearchVerdict.DIFFERENT)),
            untried_between=tuple(_with(self, between, None)),
        )


def _with(view: View, positions: Iterable[int], label: SearchVerdict | None) -> list[int]:
    return [position for position in positions if view.label(position) is label]
