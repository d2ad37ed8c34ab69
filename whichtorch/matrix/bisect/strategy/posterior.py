"""The flaky model: where the first bad version is, given runs that may have hidden the failure; and what to run next.

A bad version fails with probability q, the same for all of them and unknown; a good one never does. Hypothesis k
says that positions from k on are bad. The two outermost hypotheses say that nothing changes within the window: all of
it is bad and merely flaky (k = low), or none of it is (k = high + 1). The unknown rate is summed over a grid.
Positions here are oriented: bad is to the right.

Sources: one-sided evidence and "no culprit, it was a flake" from FACF (ICST 2023), which found no culprit in about
40 % of its ranges; the unknown rates from git_bayesect.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from operator import mul
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

NO_CHANGE = 0.2  # prior of each "nothing changes" hypothesis; together FACF's 40 %
ALWAYS = 0.9  # prior that a failure is certain, until something shows otherwise
FAILURE_RATES = (0.02, *(step / 20 for step in range(1, 20)), 0.99)
RUN_COUNTS = (1, 2, 3, 5, 8, 13, 21)  # lengths of a batch that are weighed against each other

_NEVER = -1e300  # stands for the logarithm of 0, but can be multiplied by 0


class RunCounts(NamedTuple):
    """Good and bad runs at one position, or at several."""

    good: int
    bad: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeBatch:
    """Up to `runs` runs at `position`, ended by the first bad one."""

    position: int
    runs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedBatches:
    """What batches of RUN_COUNTS runs, each ended by its first bad run, are expected to do."""

    all_good: tuple[float, ...]  # the probability of it
    good_runs: tuple[float, ...]  # their mean number


@dataclass(frozen=True, slots=True, kw_only=True)
class PosteriorPiece:
    """Hypotheses `first` to `last`, which no run so far tells apart."""

    first: int
    last: int
    mass: float  # of each of them
    if_bad: ExpectedBatches  # at a position that they call bad
    if_good: ExpectedBatches


@lru_cache(maxsize=8)
def _expectations(rates: tuple[float, ...]) -> tuple[list[list[float]], list[list[float]]]:
    """Return P(all good) and the expected number of good runs, by run count and failure rate."""
    all_good = [[(1 - rate) ** runs for rate in rates] for runs in RUN_COUNTS]
    good_runs = [
        [(1 - rate) * (1 - (1 - rate) ** runs) / rate if rate else float(runs) for rate in rates] for runs in RUN_COUNTS
    ]
    return all_good, good_runs


@lru_cache(maxsize=8)
def _logarithms(rates: tuple[float, ...]) -> list[tuple[float, float]]:
    return [(_log(rate), _log(1 - rate)) for rate in rates]


def _log(value: float) -> float:
    return math.log(value) if value > 0 else _NEVER


class _Rates:
    """A grid of failure rates with a prior."""

    def __init__(self, rates: tuple[float, ...], priors: Sequence[float]) -> None:
        self._rates = rates
        self._log_priors = [_log(prior) for prior in priors]

    def given(self, runs: RunCounts) -> tuple[float, ExpectedBatches]:
        """Return the logarithm of the evidence of `runs`, and what to expect of more runs."""
        logs = [
            prior + runs.bad * fails + runs.good * passes
            for prior, (fails, passes) in zip(self._log_priors, _logarithms(self._rates), strict=True)
        ]
        peak = max(logs)
        if peak < _NEVER / 2:
            peak = _NEVER
        weights = [math.exp(value - peak) for value in logs] if peak > _NEVER else [1.0 / len(logs)] * len(logs)
        total = sum(weights)
        all_good, good_runs = (
            tuple(sum(map(mul, row, weights)) / total for row in table) for table in _expectations(self._rates)
        )
        return peak + math.log(total), ExpectedBatches(all_good=all_good, good_runs=good_runs)


class Posterior:
    """The probability of each hypothesis about the window of positions `low` to `high`."""

    def __init__(self, low: int, high: int, runs: Mapping[int, RunCounts], *, flaky: bool = True) -> None:
        self.low, self.high = low, high
        always = 0.0 if flaky else ALWAYS
        share = (1 - always) / len(FAILURE_RATES)
        of_bad = _Rates((*FAILURE_RATES, 1.0), [*[share] * len(FAILURE_RATES), always])
        of_good = _Rates((0.0,), [1.0])
        inside = {position: runs[position] for position in sorted(runs) if low <= position <= high}
        rows = []
        for first, last in _pieces(low, high, inside):
            left = _sum(inside[position] for position in inside if position < first)
            right = _sum(inside[position] for position in inside if position >= first)
            evidence_bad, if_bad = of_bad.given(right)
            evidence_good, if_good = of_good.given(left)
            prior = NO_CHANGE if first in {low, high + 1} else (1 - 2 * NO_CHANGE) / max(1, high - low)
            rows.append((first, last, _log(prior) + evidence_bad + evidence_good, if_bad, if_good))
        peak = max(row[2] for row in rows)
        total = sum((last - first + 1) * math.exp(log - peak) for first, last, log, _, _ in rows)
        self.log_evidence = peak + math.log(total)  # to compare the two orientations
        self.pieces = [
            PosteriorPiece(first=first, last=last, mass=math.exp(log - peak) / total, if_bad=if_bad, if_good=if_good)
            for first, last, log, if_bad, if_good in rows
        ]
        masses = [piece.mass for piece in self.pieces for _ in range(piece.first, piece.last + 1)]
        self._up_to = [0.0, *accumulate(masses)]

    @property
    def all_bad(self) -> float:
        """The probability that every position is bad."""
        return self.pieces[0].mass

    @property
    def none_bad(self) -> float:
        """The probability that no position is bad."""
        return self.pieces[-1].mass

    def between(self, first: int, last: int) -> float:
        """Return the probability that the first bad position is one of `first` to `last`."""
        return self._up_to[last + 1 - self.low] - self._up_to[first - self.low]


def _pieces(low: int, high: int, tested: Mapping[int, RunCounts]) -> list[tuple[int, int]]:
    """Cut the hypotheses where a run tells them apart. The two "nothing changes" stand alone."""
    edges = sorted({low, low + 1, high + 1, high + 2, *(position + 1 for position in tested)})
    return [(first, after - 1) for first, after in pairwise(edges)]


def _sum(runs: Iterable[RunCounts]) -> RunCounts:
    pairs = list(runs)
    return RunCounts(sum(pair.good for pair in pairs), sum(pair.bad for pair in pairs))


def entropy(probability: float) -> float:
    """Return the bits in one answer to a yes-or-no question."""
    if not 0 < probability < 1:
        return 0.0
    return -probability * math.log2(probability) - (1 - probability) * math.log2(1 - probability)


def best_batch(
    posterior: Posterior, *, install: Callable[[int], float], good: float, bad: float, closed: Collection[int] = ()
) -> ProbeBatch | None:
    """Return the batch with the most expected bits per second, or None where nothing is left to learn.

    The bits are the mutual information of the batch's result (all good, or a bad run) and the first bad
    position. The seconds are those of the install and of the runs that are expected to happen. All sums are
    linear in the position within a piece, so that a choice costs O(positions x run counts).
    """
    best: ProbeBatch | None = None
    best_rate = 1e-9  # bits per second: below that it is rounding
    positions = range(posterior.low, posterior.high + 1)
    installs = {position: install(position) for position in positions if position not in closed}
    weights = [(piece.last - piece.first + 1) * piece.mass for piece in posterior.pieces]
    for number, runs in enumerate(RUN_COUNTS):
        if_bad = [_expected(piece.if_bad, number) for piece in posterior.pieces]
        if_good = [_expected(piece.if_good, number) for piece in posterior.pieces]
        # before the first hypothesis every position is good; passing hypothesis k turns position k bad
        all_good, known, good_runs = (sum(map(mul, weights, column)) for column in zip(*if_good, strict=True))
        for piece, bad_side, good_side in zip(posterior.pieces, if_bad, if_good, strict=True):
            steps = [piece.mass * (after - before) for before, after in zip(good_side, bad_side, strict=True)]
            for position in range(piece.first, min(piece.last, posterior.high) + 1):
                all_good += steps[0]
                known += steps[1]
                good_runs += steps[2]
                if position in installs:
                    seconds = installs[position] + good_runs * good + (1 - all_good) * bad
                    rate = (entropy(all_good) - known) / max(seconds, 1e-9)
                    if rate > best_rate:
                        best, best_rate = ProbeBatch(position=position, runs=runs), rate
    return best


def _expected(batches: ExpectedBatches, number: int) -> tuple[float, float, float]:
    """Return P(all good), the bits of knowing whether they are, and the expected number of good runs."""
    return batches.all_good[number], entropy(batches.all_good[number]), batches.good_runs[number]
