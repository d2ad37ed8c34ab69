"""Which batch of runs at which position tells most about the first bad version, per second."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.bisect.strategy.posterior import RUN_COUNTS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from matrix.bisect.strategy.posterior import Posterior


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Up to `runs` runs at `position`, ended by the first bad one."""

    position: int
    runs: int


def entropy(probability: float) -> float:
    """Return the bits in one answer to a yes-or-no question."""
    if not 0 < probability < 1:
        return 0.0
    return -probability * math.log2(probability) - (1 - probability) * math.log2(1 - probability)


def best_batch(
    posterior: Posterior, *, install: Callable[[int], float], good: float, bad: float, closed: Collection[int] = ()
) -> Batch | None:
    """Return the batch with the most expected bits per second, or None where nothing is left to learn.

    The bits are the mutual information of the batch's result (all good, or a bad run) and the first bad
    position; the seconds are those of the install and of the runs that are expected to happen. All sums are
    linear in the position within a piece, so that a choice costs O(positions x run counts).
    """
    best: Batch | None = None
    installs = [
        -1.0 if position in closed else install(position) for position in range(posterior.low, posterior.high + 1)
    ]
    installs.append(-1.0)  # the last hypothesis, "none is bad", has no position
    best_rate = 1e-9  # bits per second: below that it is rounding
    for number, runs in enumerate(RUN_COUNTS):
        pieces = [
            (
                piece.last - piece.first + 1,
                piece.mass,
                piece.if_bad.all_good[number],
                entropy(piece.if_bad.all_good[number]),
                piece.if_bad.good_runs[number],
                piece.if_good.all_good[number],
                entropy(piece.if_good.all_good[number]),
                piece.if_good.good_runs[number],
            )
            for piece in posterior.pieces
        ]
        # before the first hypothesis every position is good; each hypothesis k passed turns position k bad
        all_good = sum(count * mass * quiet for count, mass, _, _, _, quiet, _, _ in pieces)
        known = sum(count * mass * bits for count, mass, _, _, _, _, bits, _ in pieces)
        good_runs = sum(count * mass * passes for count, mass, _, _, _, _, _, passes in pieces)
        position = posterior.low
        for count, mass, bad_quiet, bad_bits, bad_passes, good_quiet, good_bits, good_passes in pieces:
            all_good_step = mass * (bad_quiet - good_quiet)
            known_step = mass * (bad_bits - good_bits)
            good_runs_step = mass * (bad_passes - good_passes)
            for _ in range(count):
                all_good += all_good_step
                known += known_step
                good_runs += good_runs_step
                install_here = installs[position - posterior.low]
                if install_here >= 0:
                    seconds = install_here + good_runs * good + (1 - all_good) * bad
                    rate = (entropy(all_good) - known) / max(seconds, 1e-9)
                    if rate > best_rate:
                        best, best_rate = Batch(position=position, runs=runs), rate
                position += 1
    return best
