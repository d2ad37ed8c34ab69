"""Candidates in their order -> the first set of units that cures, by as few runs as can be.

A generator: it yields what is to be tried and is sent what came of it. It knows no process and no clock, so that a
search that was interrupted is taken up by giving it the answers of the runs that were made.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from matrix.fix.hints import asked_for
from matrix.fix.trial import Effect, Trial
from matrix.fix.units import Proposal, Unit

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from matrix.fix.closure import Closure

    Search = Generator[Proposal, Trial, "Proposal | None"]

STEPS = 4  # times that a message may ask for more units, before the window is split


def first_cure(seeds: Iterable[Unit], closure: Closure) -> Search:
    """Try windows of 1, 1, 2, 4, 8, … seeds, each with what they need; return the first proposal that cures.

    Windows are disjoint, because one unit that breaks the script would spoil all that contain it. A window that
    fails in another way is given what its message asks for, else it is split.
    """
    possible = (seed for seed in seeds if not closure.of([seed]).lacking)
    harmless: set[Unit] = set()  # tried, alone or with others, and of no effect
    begin = 0
    while window := list(islice(possible, max(1, begin))):
        begin += len(window)
        cure = yield from _tried([seed for seed in window if seed not in harmless], closure, harmless)
        if cure is not None:
            return cure
    return None


def _tried(window: Sequence[Unit], closure: Closure, harmless: set[Unit]) -> Search:
    units = closure.of(window).units
    if units <= harmless:
        return None
    for _ in range(STEPS):
        trial = yield Proposal(units=units)
        if trial.effect is Effect.CURED:
            return Proposal(units=units)
        if trial.effect is Effect.SAME:
            harmless |= units
            return None
        more = closure.of([*units, *asked_for(trial, closure.change, units)])
        if more.units == units or more.lacking:
            break
        units = more.units
    if len(window) > 1:
        middle = len(window) // 2
        for half in (window[:middle], window[middle:]):
            cure = yield from _tried(half, closure, harmless)
            if cure is not None:
                return cure
    return None
