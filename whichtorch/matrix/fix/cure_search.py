"""Candidates in their order -> the first set of units that cures, by as few runs as can be.

A generator: it yields what is to be tried and is sent what came of it. It knows no process and no clock, so that a
search that was interrupted is taken up by giving it the answers of the runs that were made.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from whichtorch.matrix.fix.hints import asked_for, blamed, refused
from whichtorch.matrix.fix.trials import Trial, TrialEffect
from whichtorch.matrix.fix.units import Proposal, Unit

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from whichtorch.matrix.fix.closure import Closure

    Search = Generator[Proposal, Trial, "Proposal | None"]

STEPS = 8  # times that a message may ask for more units, before the window is split
DEPTH = 16  # times that a window of candidates is split: until single ones are left
LAST_DEPTH = 2  # of the last windows: what broke the script alone, and what hardly ever matters


class CureSearch:
    """One search; call `run` once, and read afterwards what was of no effect."""

    def __init__(self, closure: Closure) -> None:
        self.closure = closure
        self.harmless: set[Unit] = set()  # tried, alone or with others, and the script failed as before
        self.refused: dict[Unit, str] = {}  # a run has shown that these use a symbol which the bad binary lacks
        self.breaking: dict[Unit, None] = {}  # tried alone, and the script failed in another way

    def run(self, seeds: Iterable[Unit], last: Iterable[Unit] = ()) -> Search:
        """Try windows of 1, 1, 2, 4, 8, … seeds, each with what they need; return the first proposal that cures.

        Windows are disjoint, because a unit that breaks the script would spoil all that contain it. A window that
        fails in another way is given what its message asks for, else it is split. At the end, all that was of no
        effect alone is tried together, then what broke the script alone, as two units may need each other, and then
        `last`: what is not worth windows of its own. Whatever the answers, n seeds take at most 2 n windows of STEPS
        trials, and a few more at the end.
        """
        possible = (seed for seed in seeds if self._can_work([seed]))
        begin = 0
        while window := list(islice(possible, max(1, begin))):
            begin += len(window)
            cure = yield from self._tried([seed for seed in window if seed not in self.harmless], DEPTH)
            if cure is not None:
                return cure
        if begin > 1 and self.harmless:
            together = Proposal(units=frozenset(self.harmless))
            if (yield together).effect is TrialEffect.CURED:
                return together
        if len(self.breaking) > 1:
            cure = yield from self._tried(list(self.breaking), LAST_DEPTH)
            if cure is not None:
                return cure
        return (yield from self._tried(self._possible(last), LAST_DEPTH))

    def _possible(self, window: Iterable[Unit]) -> list[Unit]:
        """Return what of a window is worth a run: not known to be of no effect, nor to need what the binary lacks."""
        return [seed for seed in window if seed not in self.harmless and self._can_work([seed])]

    def _can_work(self, units: Iterable[Unit]) -> bool:
        closed = self.closure.of(units)
        return not closed.lacking and self.refused.keys().isdisjoint(closed.units)

    def _tried(self, window: Sequence[Unit], depth: int) -> Search:
        units = self.closure.of(window).units
        if units <= self.harmless:
            return None
        seen = set[str]()  # a failure that comes back has not moved on
        for _ in range(STEPS):
            trial = yield Proposal(units=units)
            if trial.effect is TrialEffect.CURED:
                return Proposal(units=units)
            if trial.effect is TrialEffect.SAME:
                self.harmless |= units
                return None
            if more_refused := {unit: why for unit, why in refused(trial, units).items() if unit not in self.refused}:
                self.refused |= more_refused
                window = self._possible(window)
                units = self.closure.of(window).units
                if not units or units <= self.harmless:
                    return None
                continue
            more = self.closure.of([*units, *asked_for(trial, self.closure.change, units)])
            if more.units == units or not self._can_work(more.units) or trial.exception in seen:
                break
            seen.add(trial.exception)
            units = more.units
        if len(window) == 1:
            self.breaking[window[0]] = None
        if len(window) > 1 and depth:
            for part in self._parts(window, blamed(trial, units)):
                cure = yield from self._tried(part, depth - 1)
                if cure is not None:
                    return cure
        return None

    def _parts(self, window: Sequence[Unit], guilty: set[Unit]) -> tuple[Sequence[Unit], Sequence[Unit]]:
        """Return two parts of a window: what does without the units that broke the script, and what needs them."""
        free = [seed for seed in window if not self.closure.of([seed]).units & guilty]
        if 0 < len(free) < len(window):
            return free, [seed for seed in window if seed not in free]
        middle = len(window) // 2
        return window[:middle], window[middle:]
