"""The nouns of a search: its runs so far and what they say, what a probe costs, the next probe and the answer.

The flaky model says where the first bad version is, given runs that may have hidden the failure. A bad version fails
with probability q, the same for all of them and unknown; a good one never does. Hypothesis k says that positions from
k on are bad. The two outermost hypotheses say that nothing changes within the window: all of it is bad and merely
flaky (k = low), or none of it is (k = high + 1). The unknown rate is summed over a grid. For a fix, the window is
mirrored first.

Sources: one-sided evidence and "no culprit, it was a flake" from FACF (ICST 2023), which found no culprit in about
40 % of its ranges; the unknown rates from git_bayesect.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import accumulate, pairwise
from operator import mul
from typing import NamedTuple

MOST_RUNS_EACH = 64  # runs of one position: a failure of one run in 20 shows in so many with a probability of 96 %
TIMED_OUT_RUNS = 2  # runs that are enough for a position whose runs time out
SETTLING_RUNS = 4  # runs of a position after which no longer look is hoped for: more would time out as well


def most_runs(size: int, *, flaky: bool) -> int:
    """Return how many runs a search of so many positions may make: where runs disagree, it takes several of each."""
    return 8 * size + 160 if flaky else 2 * size + 20


class SearchVerdict(StrEnum):
    """What one run says about its position."""

    GOOD = "good"
    BAD = "bad"  # the reference failure
    DIFFERENT = "different"  # another failure: neither good nor bad
    UNTESTABLE = "untestable"  # not installable, not applicable, the harness: no evidence

    @property
    def opposite(self) -> SearchVerdict | None:
        """The verdict that contradicts a good or a bad one."""
        good, bad = SearchVerdict.GOOD, SearchVerdict.BAD
        return {good: bad, bad: good}.get(self)


class Change(StrEnum):
    """What happens at a boundary, read from the older to the newer side."""

    FIX = "fix"
    REGRESSION = "regression"

    @property
    def sides(self) -> tuple[SearchVerdict, SearchVerdict]:
        """The verdicts before and after it."""
        good, bad = SearchVerdict.GOOD, SearchVerdict.BAD
        return (bad, good) if self is Change.FIX else (good, bad)


class Find(StrEnum):
    """Which change is searched for."""

    FIX = "fix"
    REGRESSION = "regression"
    ANY = "any"  # the one that the bounds show
    ALL = "all"  # all that sampling within the budget finds

    def wants(self, change: Change) -> bool:
        """Return True where a boundary of this kind answers the question."""
        return self in {Find.ANY, Find.ALL} or self.value == change.value


class Purpose(StrEnum):
    """Why a probe is made."""

    BOUND = "bound"
    WIDEN = "widen"  # a bound does not hold, or cannot be tested
    NARROW = "narrow"  # inside the bracket
    SAMPLE = "sample"  # looking for a change that the bounds do not show
    CONFIRM = "confirm"  # once more, to be sure
    SETTLE = "settle"  # a run with the longer limit, where the clock ended one that was still moving


class AnswerKind(StrEnum):
    """Which sort of answer it is."""

    BOUNDARY = "boundary"
    NONE = "none"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRun:
    """One run, or a failed try to make one."""

    position: int
    verdict: SearchVerdict
    provisional: bool = False  # the clock ended it while it was still moving: ignored once there is a firm run


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """What to find, and how sure the answer must be."""

    find: Find = Find.ANY
    low: int = 0  # the bounds as asked for; positions outside them are used only to repair them
    high: int | None = None  # default: the last position
    confidence: float = 0.95
    flaky: bool = False  # use the flaky model from the start
    bound_runs: int = 3  # of a bad bound: a flake shows here first
    confirm_runs: int = 2  # of each of the final pair, at least
    pass_runs: int = 5  # of the good one, unless the search is flaky: half of all runs failing is missed once in 32
    samples: int | None = None  # positions tried where the bounds are bad, or for `all`; default ceil(log2 n)
    max_runs: int | None = None  # where that is less than `most_runs`
    dead_side: int = 0  # where dead positions are likely: 1 next to the newer bound, -1 next to the older, 0 anywhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What a probe costs, in seconds. By default all runs cost the same."""

    install: tuple[float, ...] = ()  # by position, 0 where it is installed already; empty if no install costs
    good: float = 1.0  # a good run
    bad: float = 1.0  # a bad run: a hang costs its timeout

    def install_at(self, position: int) -> float:
        """Return the seconds until `position` can be run."""
        return self.install[position] if self.install else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NextProbe:
    """What to run next: up to `runs` runs at a position. A run with `until` or an untestable one ends it early."""

    position: int
    runs: int = 1
    until: SearchVerdict | None = None  # one run with this verdict is enough
    purpose: Purpose
    firm: bool = False  # with the longer limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Bracket:
    """Two tested positions between which the outcome changes; no position between them is good or bad."""

    before: int
    after: int
    change: Change
    confidence: float = 0.0  # that the change is between them
    untestable_between: tuple[int, ...] = ()  # tried
    different_between: tuple[int, ...] = ()
    untried_between: tuple[int, ...] = ()  # surrounded by untestable ones, or the budget ended


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """What the evidence says. The boundaries of an inconclusive answer are brackets that blame nothing."""

    kind: AnswerKind
    boundaries: tuple[Bracket, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The runs at one position, by the names of the verdicts.

    Provisional runs carry no verdict once there is a firm good or bad one.
    """

    good: int = 0
    bad: int = 0
    different: int = 0
    untestable: int = 0
    provisional: bool = False
    runs: int = 0  # all of them, also those without a verdict

    @classmethod
    def of(cls, runs: Sequence[ProbeRun]) -> Tally:
        """Count the runs at one position."""
        decisive = [run for run in runs if run.verdict in {SearchVerdict.GOOD, SearchVerdict.BAD}]
        firm = [run for run in decisive if not run.provisional]
        verdicts = Counter(run.verdict.value for run in runs if not (firm and run.provisional))
        return cls(provisional=bool(decisive) and not firm, runs=len(runs), **verdicts)

    @property
    def label(self) -> SearchVerdict | None:
        """The verdict: bad if any run is bad; else different if any shows another failure; else good if any is good."""
        ranks = (SearchVerdict.BAD, SearchVerdict.DIFFERENT, SearchVerdict.GOOD, SearchVerdict.UNTESTABLE)
        return next((verdict for verdict in ranks if getattr(self, verdict)), None)

    @property
    def decisive(self) -> int:
        """The number of runs that were good or bad."""
        return self.good + self.bad

    @property
    def is_mixed(self) -> bool:
        """True where runs disagree."""
        return bool(self.good and self.bad)


NO_RUNS = Tally()


@dataclass(frozen=True, kw_only=True)
class SearchState:
    """All that a decision depends on, and what the observations say. Their order does not matter."""

    size: int  # number of positions, ordered from old to new
    observations: tuple[ProbeRun, ...] = ()
    options: SearchOptions = field(default_factory=SearchOptions)
    costs: Costs = field(default_factory=Costs)
    names: tuple[str, ...] = ()  # of positions, for reasons
    twins: tuple[frozenset[int], ...] = ()  # positions that share an environment, and so its runs
    exhausted: frozenset[int] = frozenset()  # positions where a rerun showed nothing new: they are not run again
    made: int | None = None  # runs that this search made; None: all those observed

    @property
    def bounds(self) -> tuple[int, int]:
        """The bounds as asked for, kept inside the range and in order."""
        high = self.size - 1 if self.options.high is None else self.options.high
        low, high = sorted(min(max(end, 0), self.size - 1) for end in (self.options.low, high))
        return low, high

    def name(self, position: int) -> str:
        """Return what people call a position."""
        return self.names[position] if self.names else str(position)

    # what the runs say

    @cached_property
    def tallies(self) -> dict[int, Tally]:
        """The counts of each position that was tried, in their order."""
        by_position: defaultdict[int, list[ProbeRun]] = defaultdict(list)
        for run in self.observations:
            by_position[run.position].append(run)
        return {position: Tally.of(runs) for position, runs in sorted(by_position.items())}

    def at(self, position: int) -> Tally:
        """Return the counts of a position."""
        return self.tallies.get(position, NO_RUNS)

    @cached_property
    def _labels(self) -> dict[int, SearchVerdict | None]:
        return {position: tally.label for position, tally in self.tallies.items()}

    def label(self, position: int) -> SearchVerdict | None:
        """Return the verdict on a position, or None where it was not tried."""
        return self._labels.get(position)

    def is_labeled(self, position: int) -> bool:
        """Return whether a position is known to be good or bad."""
        return self.label(position) in {SearchVerdict.GOOD, SearchVerdict.BAD}

    @cached_property
    def labeled(self) -> list[int]:
        """Positions known to be good or bad, in order."""
        return list(filter(self.is_labeled, self.tallies))

    def dead(self, before: int, after: int) -> list[int]:
        """Return the positions between two others that were tried and are neither good nor bad."""
        return [position for position in self.tallies if before < position < after and not self.is_labeled(position)]

    def neighbors(self, position: int) -> tuple[int, int]:
        """Return the nearest labeled positions before and after one; -1 and the size where there are none."""
        before = max((other for other in self.labeled if other < position), default=-1)
        after = min((other for other in self.labeled if other > position), default=self.size)
        return before, after

    @cached_property
    def steps(self) -> list[Bracket]:
        """Every change between neighbors that are labeled, in order."""
        return [
            Bracket(before=before, after=after, change=change)
            for before, after in pairwise(self.labeled)
            for change in Change
            if change.sides == (self.label(before), self.label(after))
        ]

    def bracket(self, posterior: Posterior, before: int, after: int) -> Bracket:
        """Describe a change between two positions, with its confidence and what lies between."""

        def between(label: SearchVerdict | None) -> tuple[int, ...]:
            return tuple(position for position in range(before + 1, after) if self.label(position) is label)

        return Bracket(
            before=before,
            after=after,
            change=posterior.change,
            confidence=posterior.between(before, after),
            untestable_between=between(SearchVerdict.UNTESTABLE),
            different_between=between(SearchVerdict.DIFFERENT),
            untried_between=between(None),
        )

    @property
    def reaches(self) -> tuple[int, int]:
        """The outermost positions: the bounds, or labeled positions beyond them."""
        known = (*self.bounds, *self.labeled)
        return min(known), max(known)

    @property
    def has_failed(self) -> bool:
        """True where some run showed the failure."""
        return any(counts.bad for counts in self.tallies.values())

    @property
    def is_flaky(self) -> bool:
        """True where the flaky model decides: some position passed and failed, or the user expects that."""
        return self.options.flaky or any(counts.is_mixed for counts in self.tallies.values())

    # how much more may be run

    def runs_of(self, positions: Iterable[int]) -> int:
        """Return how many runs some positions had, counting those of each environment once."""
        firsts = {twin: min(twins) for twins in self.twins for twin in twins}
        return sum(self.at(position).runs for position in {firsts.get(position, position) for position in positions})

    @property
    def runs_allowed(self) -> int:
        """How many runs the search may make."""
        most, asked_for = most_runs(self.size, flaky=self.is_flaky), self.options.max_runs
        return most if asked_for is None else min(most, asked_for)

    @property
    def runs_left(self) -> int:
        """How many more runs the search may make."""
        return self.runs_allowed - (self.runs_of(self.tallies) if self.made is None else self.made)

    def missing(self, position: int, wanted: int) -> int:
        """Return how many more runs a position needs, whatever its runs showed; 0 if another would say nothing.

        Runs that time out cost the most, and a longer look checks them where they matter, so two are enough.
        """
        known = self.at(position)
        wanted = min(wanted, TIMED_OUT_RUNS) if known.provisional else wanted
        return wanted - known.runs if self.is_open(position) else 0

    def is_open(self, position: int) -> bool:
        """Return whether a position may be run again: it has runs left, and most of its runs were evidence."""
        known = self.at(position)
        is_telling = known.different + known.untestable < max(1, known.decisive)
        return is_telling and known.runs < MOST_RUNS_EACH and position not in self.exhausted

    @property
    def samples(self) -> int:
        """How many positions to try between bounds that are bad, or for Find.ALL."""
        low, high = self.reaches
        wanted = self.options.samples
        return math.ceil(math.log2(max(2, high - low + 1))) if wanted is None else wanted


NO_CHANGE = 0.2  # prior of each "nothing changes" hypothesis; together FACF's 40 %
ALWAYS = 0.9  # prior that a failure is certain, until something shows otherwise
FAILURE_RATES = (0.02, *(step / 20 for step in range(1, 20)), 0.99)
RUN_COUNTS = (1, 2, 3, 5, 8, 13, 21)  # lengths of a batch that are weighed against each other

_NEVER = -1e300  # stands for the logarithm of 0, but can be multiplied by 0
_RATES = (*FAILURE_RATES, 1.0)
# of a batch at a bad position, by its length and the failure rate: the probability that all its runs are good
_ALL_GOOD = [[(1 - rate) ** runs for rate in _RATES] for runs in RUN_COUNTS]
# and the expected number of its good runs
_GOOD_RUNS = [[(1 - rate) * (1 - (1 - rate) ** runs) / rate for rate in _RATES] for runs in RUN_COUNTS]


def _log(value: float) -> float:
    return math.log(value) if value > 0 else _NEVER


class PosteriorPiece(NamedTuple):
    """Hypotheses `first` to `last`, which no run so far tells apart."""

    first: int
    last: int
    log_weight: float  # of each hypothesis
    # of a batch at a position that these hypotheses call bad, by RUN_COUNTS; a batch ends with its first bad run
    all_good: list[float]  # the probability that all its runs are good
    good_runs: list[float]  # the expected number of its good runs


class Posterior:
    """The probability of each hypothesis about the window of positions `low` to `high`."""

    def __init__(
        self, low: int, high: int, runs: Mapping[int, Tally], change: Change = Change.REGRESSION, *, flaky: bool = True
    ) -> None:
        self._low, self._high, self.change = low, high, change
        always = 0.0 if flaky else ALWAYS
        inside = {self._mirrored(position): counts for position, counts in runs.items() if low <= position <= high}
        edges = {low, low + 1, high + 1, high + 2, *(position + 1 for position in inside)}
        self._pieces = []
        for first, after in pairwise(sorted(edges)):
            bad_side = [counts for position, counts in inside.items() if position >= first]
            evidence, all_good, good_runs = _weigh_bad_side(bad_side, always)
            if any(counts.bad for position, counts in inside.items() if position < first):
                evidence += _NEVER
            prior = NO_CHANGE if first in {low, high + 1} else (1 - 2 * NO_CHANGE) / max(1, high - low)
            self._pieces.append(PosteriorPiece(first, after - 1, math.log(prior) + evidence, all_good, good_runs))
        weights = [piece.log_weight for piece in self._pieces for _ in range(piece.first, piece.last + 1)]
        peak = max(weights)
        self.log_evidence = peak + math.log(sum(math.exp(weight - peak) for weight in weights))
        masses = [math.exp(weight - self.log_evidence) for weight in weights]
        self.all_bad, self.none_bad = masses[0], masses[-1]
        self._up_to = [0.0, *accumulate(masses)]

    @classmethod
    def of(cls, search: SearchState, change: Change, low: int, high: int, *, flaky: bool) -> Posterior:
        """Return the posterior of a single change, given what a search has seen within low..high.

        The runs of one environment count once, at the one of its positions that is nearest to the change.
        """
        repeated: set[int] = set()
        for twins in search.twins:
            nearest = max(twins) if search.label(min(twins)) is change.sides[0] else min(twins)
            repeated |= twins - {nearest}
        runs = {position: search.at(position) for position in search.labeled if position not in repeated}
        return cls(low, high, runs, change, flaky=flaky)

    def _mirrored(self, position: int) -> int:
        """Turn a position of a fix so that bad is on the right, or back."""
        return position if self.change is Change.REGRESSION else self._low + self._high - position

    def between(self, before: int, after: int) -> float:
        """Return the probability that the outcome changes between two positions: after the first, up to the second."""
        good, bad = sorted(map(self._mirrored, (before, after)))
        return self._up_to[bad + 1 - self._low] - self._up_to[good + 1 - self._low]

    def best_batch(self, costs: Costs, positions: Iterable[int]) -> tuple[int, int] | None:
        """Return the position, and the number of runs there, with the most expected bits per second.

        None if nothing is left to learn at these positions. The batch ends with its first bad run. The bits are the
        mutual information of its result (all good, or a bad run) and the first bad position. The seconds are those of
        the install and of the runs that are expected to happen. All sums are linear in the position within a piece, so
        a choice costs O(positions x run counts).
        """
        best: tuple[int, int] | None = None
        best_rate = 1e-9  # bits per second: below that it is rounding
        installs = {self._mirrored(position): costs.install_at(position) for position in positions}
        for number, runs in enumerate(RUN_COUNTS):
            # before the first hypothesis every position is good; passing hypothesis k turns position k bad
            all_good, known, good_runs = 1.0, 0.0, float(runs)
            for piece in self._pieces:
                mass, chance = math.exp(piece.log_weight - self.log_evidence), piece.all_good[number]
                steps = (mass * (chance - 1), mass * entropy(chance), mass * (piece.good_runs[number] - runs))
                for position in range(piece.first, min(piece.last, self._high) + 1):
                    all_good += steps[0]
                    known += steps[1]
                    good_runs += steps[2]
                    if position in installs:
                        seconds = installs[position] + good_runs * costs.good + (1 - all_good) * costs.bad
                        rate = (entropy(all_good) - known) / max(seconds, 1e-9)
                        if rate > best_rate:
                            best, best_rate = (self._mirrored(position), runs), rate
        return best


def _weigh_bad_side(counted: Iterable[Tally], always: float) -> tuple[float, list[float], list[float]]:
    """Return the logarithm of the evidence of runs at bad positions, and what to expect of more runs there.

    `always` is the prior that a bad position fails in every run.
    """
    tallies = list(counted)
    good, bad = sum(counts.good for counts in tallies), sum(counts.bad for counts in tallies)
    priors = [*[(1 - always) / len(FAILURE_RATES)] * len(FAILURE_RATES), always]
    logs = [
        _log(prior) + bad * math.log(rate) + good * _log(1 - rate) for prior, rate in zip(priors, _RATES, strict=True)
    ]
    peak = max(logs)
    weights = [math.exp(value - peak) for value in logs]
    total = sum(weights)
    all_good, good_runs = ([sum(map(mul, row, weights)) / total for row in table] for table in (_ALL_GOOD, _GOOD_RUNS))
    return peak + math.log(total), all_good, good_runs


def entropy(probability: float) -> float:
    """Return the bits in one answer to a yes-or-no question."""
    if not 0 < probability < 1:
        return 0.0
    return -probability * math.log2(probability) - (1 - probability) * math.log2(1 - probability)
