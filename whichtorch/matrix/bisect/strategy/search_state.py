"""The nouns of a search: the runs so far, what a probe costs, the next probe and the answer."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

MOST_RUNS_EACH = 64  # runs of one position: a failure of one run in 20 shows in so many with a probability of 96 %


def most_runs(size: int, *, flaky: bool) -> int:
    """Return how many runs a search of so many positions may make: where runs disagree, it takes several of each."""
    return 8 * size + 160 if flaky else 2 * size + 20


class SearchVerdict(StrEnum):
    """What one run says about its position."""

    GOOD = "good"
    BAD = "bad"  # the reference failure
    DIFFERENT = "different"  # another failure: neither good nor bad
    UNTESTABLE = "untestable"  # not installable, not applicable, the harness: no evidence


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
class SearchState:
    """All that a decision depends on. The order and the history of the observations do not matter."""

    size: int  # number of positions, ordered from old to new
    observations: tuple[ProbeRun, ...] = ()
    options: SearchOptions = field(default_factory=SearchOptions)
    costs: Costs = field(default_factory=Costs)
    names: tuple[str, ...] = ()  # of positions, for reasons
    twins: tuple[frozenset[int], ...] = ()  # positions that are one environment, whose runs are the same ones
    exhausted: frozenset[int] = frozenset()  # positions of which another run said nothing: they are left at that
    first: tuple[int, ...] = ()  # positions worth trying first where everything passes
    made: int | None = None  # runs that this search made, where others made some of those observed

    @property
    def bounds(self) -> tuple[int, int]:
        """The bounds as asked for, kept inside the range and in order."""
        high = self.size - 1 if self.options.high is None else self.options.high
        ends = sorted(min(max(end, 0), self.size - 1) for end in (self.options.low, high))
        return ends[0], ends[1]


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
    """Two tested positions between which the outcome changes."""

    before: int
    after: int
    change: Change
    confidence: float
    untestable_between: tuple[int, ...] = ()  # tried
    different_between: tuple[int, ...] = ()
    untried_between: tuple[int, ...] = ()  # surrounded by untestable ones, or the budget ended

    @property
    def is_exact(self) -> bool:
        """True for neighbours: the culprit is `after`."""
        return self.after == self.before + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """What the evidence says. The boundaries of an inconclusive answer are brackets that blame nothing."""

    kind: AnswerKind
    boundaries: tuple[Bracket, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """The runs at one position, by verdict. Provisional runs carry no verdict once there is a firm good or bad one."""

    good: int = 0
    bad: int = 0
    different: int = 0
    untestable: int = 0
    provisional: bool = False
    runs: int = 0  # all of them, those without a verdict, too

    @property
    def label(self) -> SearchVerdict:
        """The verdict: bad if any run is bad; else different if any shows another failure; else good if any is good."""
        if self.bad:
            return SearchVerdict.BAD
        if self.different:
            return SearchVerdict.DIFFERENT
        return SearchVerdict.GOOD if self.good else SearchVerdict.UNTESTABLE

    @property
    def decisive(self) -> int:
        """The number of runs that were good or bad."""
        return self.good + self.bad

    @property
    def is_mixed(self) -> bool:
        """True where runs disagree."""
        return bool(self.good and self.bad)


def tally(observations: Iterable[ProbeRun]) -> dict[int, Tally]:
    """Count the observations by position, in the order of positions."""
    by_position: dict[int, list[ProbeRun]] = {}
    for observation in observations:
        by_position.setdefault(observation.position, []).append(observation)
    tallies = {}
    for position, runs in sorted(by_position.items()):
        decisive = [run for run in runs if run.verdict in {SearchVerdict.GOOD, SearchVerdict.BAD}]
        firm = [run for run in decisive if not run.provisional]
        verdicts = Counter(run.verdict.value for run in runs if not (firm and run.provisional))
        tallies[position] = Tally(provisional=bool(decisive) and not firm, runs=len(runs), **verdicts)
    return tallies
