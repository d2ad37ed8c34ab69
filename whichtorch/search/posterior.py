"""The flaky model: where the first bad version is, given runs that may have hidden the failure; and what to run next.

A bad version fails with probability q, the same for all of them and unknown; a good one never does. Hypothesis k
says that positions from k on are bad. The two outermost hypotheses say that nothing changes within the window: all of
it is bad and merely flaky (k = low), or none of it is (k = high + 1). The unknown rate is summed over a grid.
For a fix, the window is mirrored first.

Sources: one-sided evidence and "no culprit, it was a flake" from FACF (ICST 2023), which found no culprit in about
40 % of its ranges; the unknown rates from git_bayesect.
"""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.search.search_state import Change

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from whichtorch.search.search_state import Costs, SearchState, Tally

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
