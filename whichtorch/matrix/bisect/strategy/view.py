"""What a decision looks at: the labels that the observations give, and whether the bounds of the search hold.

A bound that cannot be tested is replaced. Where the bounds do not differ, the search looks further out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from whichtorch.matrix.bisect.strategy import bracket
from whichtorch.matrix.bisect.strategy.posterior import Posterior, RunCounts
from whichtorch.matrix.bisect.strategy.search_state import (
    MOST_RUNS_EACH,
    Bracket,
    Change,
    Find,
    NextProbe,
    Purpose,
    SearchState,
    SearchVerdict,
    Tally,
    most_runs,
    tally,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

NO_RUNS = Tally()
ENDED_BY_CLOCK = 2  # runs of a position that the clock ended, where others have more


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """Two labelled positions with different labels and no labelled one between."""

    before: int
    after: int
    change: Change


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A search and its observations, counted."""

    search: SearchState
    tallies: dict[int, Tally]

    @classmethod
    def of(cls, search: SearchState) -> View:
        """Count the observations of a search."""
        return cls(search=search, tallies=tally(search.observations))

    @property
    def labelled(self) -> list[int]:
        """Positions known good or bad, in order."""
        return [position for position in self.tallies if self.is_labelled(position)]

    def name(self, position: int) -> str:
        """Return what people call a position."""
        return self.search.names[position] if self.search.names else str(position)

    def label(self, position: int) -> SearchVerdict | None:
        """Return the verdict on a position, or None where it was not tried."""
        return self.tallies[position].label if position in self.tallies else None

    def is_labelled(self, position: int) -> bool:
        """Return True where a position is known good or bad."""
        return self.label(position) in {SearchVerdict.GOOD, SearchVerdict.BAD}

    def at(self, position: int) -> Tally:
        """Return the counts of a position."""
        return self.tallies.get(position, NO_RUNS)

    def runs_of(self, positions: Iterable[int]) -> int:
        """Return how many runs some positions had, those of one environment once."""
        firsts = {min(self._twins(position)) for position in positions}
        return sum(self.at(position).runs for position in firsts)

    def _twins(self, position: int) -> frozenset[int]:
        """Return the positions that are the same environment as one, itself among them."""
        return next((twins for twins in self.search.twins if position in twins), frozenset({position}))

    def missing(self, position: int, wanted: int) -> int:
        """Return how many more runs a position needs, whatever its runs showed; 0 if another would say nothing.

        Runs that the clock ended are the dearest, and a longer look checks them where they matter: two are enough.
        """
        known = self.at(position)
        wanted = min(wanted, ENDED_BY_CLOCK) if known.provisional else wanted
        return wanted - known.runs if self.is_open(position) else 0

    def is_open(self, position: int) -> bool:
        """Return whether a position may be asked: it has runs left, and most that it had were evidence."""
        known = self.at(position)
        is_telling = known.different + known.untestable < max(1, known.decisive)
        return is_telling and known.runs < MOST_RUNS_EACH and position not in self.search.exhausted

    def is_unsettled(self, position: int) -> bool:
        """Return whether a position rests on runs that the clock ended, and a longer look may still decide."""
        return self.at(position).provisional and self.is_open(position)

    def dead(self, before: int, after: int) -> list[int]:
        """Return the positions between two others that were tried and are neither good nor bad."""
        return [position for position in self.tallies if before < position < after and not self.is_labelled(position)]

    @property
    def steps(self) -> list[Transition]:
        """Every change between neighbouring labels, in order."""
        return [
            Transition(before=before, after=after, change=change)
            for before, after in pairwise(self.labelled)
            for change in Change
            if change.sides == (self.label(before), self.label(after))
        ]

    @property
    def is_mixed(self) -> bool:
        """True where some position passed and failed."""
        return any(counts.is_mixed for counts in self.tallies.values())

    @property
    def has_failed(self) -> bool:
        """True where some run showed the failure."""
        return any(counts.bad for counts in self.tallies.values())

    @property
    def reaches(self) -> tuple[int, int]:
        """The outermost positions: the bounds, or labelled positions beyond them."""
        low, high = self.search.bounds
        return min([low, *self.labelled]), max([high, *self.labelled])

    @property
    def is_flaky(self) -> bool:
        """True where the flaky model decides: some position passed and failed, or the user expects that."""
        return self.search.options.flaky or self.is_mixed

    @property
    def most(self) -> int:
        """How many runs the search may make."""
        most, asked_for = most_runs(self.search.size, flaky=self.is_flaky), self.search.options.max_runs
        return most if asked_for is None else min(most, asked_for)

    @property
    def left(self) -> int:
        """How many of these are left."""
        made = self.search.made
        return self.most - (self.runs_of(self.tallies) if made is None else made)

    @property
    def samples(self) -> int:
        """How many positions to try between bounds that are bad, or for Find.ALL."""
        low, high = self.reaches
        wanted = self.search.options.samples
        return math.ceil(math.log2(max(2, high - low + 1))) if wanted is None else wanted

    def mirror(self, position: int, change: Change) -> int:
        """Turn a position so that bad is on the right, or back."""
        return position if change is Change.REGRESSION else self.search.size - 1 - position

    def posterior(self, change: Change, low: int, high: int, *, flaky: bool) -> Posterior:
        """Return the posterior of a single change within low..high, in mirrored positions.

        The runs of one environment count once, at the one of its positions that is nearest to the change.
        """
        twins = self._repeated(change)
        runs = {
            self.mirror(position, change): RunCounts(counts.good, counts.bad)
            for position, counts in self.tallies.items()
            if low <= position <= high and self.is_labelled(position) and position not in twins
        }
        ends = sorted((self.mirror(low, change), self.mirror(high, change)))
        return Posterior(ends[0], ends[1], runs, flaky=flaky)

    def _repeated(self, change: Change) -> set[int]:
        """Return the positions whose runs are those of another position nearer to the change."""
        repeated: set[int] = set()
        for twins in self.search.twins:
            nearest = max(twins) if self.label(min(twins)) is change.sides[0] else min(twins)
            repeated |= twins - {nearest}
        return repeated

    def confidence(self, step: Transition, posterior: Posterior) -> float:
        """Return the probability that the culprit is after `before` and not after `after`."""
        before, after = sorted((self.mirror(step.before, step.change), self.mirror(step.after, step.change)))
        return posterior.between(before + 1, after)

    def boundary(self, step: Transition, confidence: float) -> Bracket:
        """Describe a step with what lies between."""

        def between(label: SearchVerdict | None) -> tuple[int, ...]:
            positions = range(step.before + 1, step.after)
            return tuple(position for position in positions if self.label(position) is label)

        return Bracket(
            before=step.before,
            after=step.after,
            change=step.change,
            confidence=confidence,
            untestable_between=between(SearchVerdict.UNTESTABLE),
            different_between=between(SearchVerdict.DIFFERENT),
            untried_between=between(None),
        )


def check_bounds(view: View) -> NextProbe | tuple[int, int] | None:
    """Return the next probe that the bounds need, or two testable bounds, or None where there are not two.

    A bound that cannot be tested is replaced by a position further out. Where there is none, the range is halved
    as if the bound differed from the other one. If it does, the probe is not wasted; if not, the probe finds the
    edge of the testable positions. Find.ALL gets that edge in any case, because a change may lie before it.
    """
    low, high = view.search.bounds
    ends: list[int] = []
    for bound, direction in ((low, -1), (high, 1)):
        for position in _outward(bound, direction, view.search.size):
            if view.label(position) is None:
                return _bound_probe(view, position, Purpose.BOUND if position == bound else Purpose.WIDEN)
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
        known = view.at(position)
        missing = view.missing(position, view.search.options.bound_runs)
        if known.bad and not known.good and missing > 0:  # known from elsewhere, but not how reliably
            return NextProbe(position=position, runs=missing, until=SearchVerdict.GOOD, purpose=Purpose.CONFIRM)
    return tested[0], tested[-1]


def _towards_dead_bound(view: View, low: int, high: int) -> NextProbe | None:
    """Return a probe between an untestable bound and the nearest testable position, or None at the edge."""
    tested = [position for position in view.labelled if low <= position <= high]
    pairs = [(low, tested[0]), (tested[-1], high)] if tested else [(low, high)]
    for before, after in pairs:
        if not (view.is_labelled(before) and view.is_labelled(after)):
            position = bracket.next_probe(before, after, view.dead(before - 1, after + 1))
            if position is not None:
                return NextProbe(position=position, purpose=Purpose.WIDEN)
    return None


def find_edge(view: View) -> NextProbe | None:
    """Return a probe between the outermost testable position and the untestable ones beyond it."""
    first, last = view.labelled[0], view.labelled[-1]
    older = max((position for position in view.tallies if position < first), default=first)
    newer = min((position for position in view.tallies if position > last), default=last)
    for before, after in ((older, first), (last, newer)):
        if after - before > 1:
            return NextProbe(position=(before + after) // 2, purpose=Purpose.WIDEN)
    return None


def widen(view: View) -> NextProbe | None:
    """Return a probe further out, by doubling, where the bounds do not show the change; None at the ends."""
    low, high = view.search.bounds
    for direction in _directions(view):
        edge = low if direction < 0 else high
        width = max(1, high - low)
        while (direction < 0 and edge > 0) or (direction > 0 and edge < view.search.size - 1):
            edge = min(max(edge + direction * width, 0), view.search.size - 1)
            width *= 2
            if view.label(edge) is None:
                return _bound_probe(view, edge, Purpose.WIDEN)
    return None


def sample(view: View) -> NextProbe | None:
    """Return a position to try where the bounds agree, or for Find.ALL; None where enough positions were tried.

    While nothing fails, that is every position: those worth trying first, then the middle of the widest gap.
    """
    low, high = view.reaches
    positions = [position for position in view.tallies if low <= position <= high]
    wider_than = 1
    if view.has_failed and len(positions) - 2 >= view.samples:
        # positions known from earlier runs may lie close together, so their number alone does not cover the range
        wider_than = math.ceil((high - low) / 2 ** int(math.log2(view.samples + 1)))
    worthy = (each for each in view.search.first if low <= each <= high and each not in view.tallies)
    first = None if view.has_failed else next(worthy, None)
    middle = bracket.widest_gap(positions, low, high, wider_than) if first is None else first
    return None if middle is None else NextProbe(position=middle, purpose=Purpose.SAMPLE)


def widen_towards(view: View, direction: int) -> NextProbe | None:
    """Return a probe twice as far out on one side as any before, or None at the end of the range."""
    low, high = view.reaches
    edge = low if direction < 0 else high
    further = min(max(edge + direction * max(1, high - low), 0), view.search.size - 1)
    return _bound_probe(view, further, Purpose.WIDEN) if view.label(further) is None else None


def _bound_probe(view: View, position: int, purpose: Purpose) -> NextProbe:
    """Return a probe that runs a good bound once and a bad one several times, so that a flaky failure shows here."""
    return NextProbe(position=position, runs=view.search.options.bound_runs, until=SearchVerdict.GOOD, purpose=purpose)


def _outward(bound: int, direction: int, size: int) -> Iterator[int]:
    """Yield the bound, then positions beyond it, by doubling, to the end of the range."""
    position, jump = bound, 1
    while 0 <= position < size:
        yield position
        position += direction * jump
        jump *= 2


def _directions(view: View) -> list[int]:
    """Return on which sides, -1 old and 1 new, the change may still be."""
    find = view.search.options.find
    labelled = view.labelled
    if find in {Find.ANY, Find.ALL}:
        return [1, -1]  # newer first: whoever has a failure now hopes for a fix
    before, after = Change(find.value).sides
    sides = ((-1, labelled[0], before), (1, labelled[-1], after))
    return [side for side, position, wanted in sides if view.label(position) is not wanted]
