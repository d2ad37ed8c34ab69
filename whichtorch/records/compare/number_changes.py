"""Numbers of two runs: which are worse or better, and which of them two runs in a row show to be so.

A number of today is never compared with one of yesterday, but its change from a reference that was measured in turns
with it is compared with the change from the same reference at the other time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.measure.measure import Measure
from whichtorch.model import Effect, Measurement, Quantity, Run, ValueChange
from whichtorch.search.estimate import Estimate

if TYPE_CHECKING:
    from collections.abc import Iterator


class NumberChange(Quantity):
    """A number that is worse or better than it was, both measured in turns with the same reference."""

    reference: str  # label
    since: str  # id of the run that it is compared with
    old: ValueChange  # against the reference
    new: ValueChange
    change: ValueChange  # from old to new
    effect: Effect
    is_confirmed: bool = False  # the run before the new one says the same


@dataclass(frozen=True, slots=True, kw_only=True)
class RunNumbers:
    """The numbers of a run by environment (its id in the new run), test and measure."""

    run: Run
    by_cell: dict[tuple[str, str], dict[str, Measurement]]

    def change(self, key: tuple[str, str], number: Measurement) -> NumberChange | None:
        """Return how a number differs from this run's, None where the two do not compare, or do not differ."""
        old = self.by_cell.get(key, {}).get(number.name)
        measure = Measure.of(number)
        if old is None or Measure.of(old).model_copy(update={"change": measure.change}) != measure:
            return None
        shift = _shift(old, number, measure)
        effect = measure.threshold.effect(shift) if shift else Effect.UNDECIDED
        if shift is None or old.change is None or number.change is None or not effect.counts:
            return None
        return NumberChange(
            name=number.name,
            unit=number.unit,
            is_share=number.is_share,
            reference=number.reference,
            since=self.run.id,
            old=old.change,
            new=number.change,
            change=measure.change_in(shift),
            effect=effect,
        )


def number_changes(
    key: tuple[str, str], new: RunNumbers, old: RunNumbers, *before: RunNumbers
) -> Iterator[NumberChange]:
    """Yield the numbers of a cell that are worse or better than in the old run; `before` are those before the new one.

    A change needs two runs in a row. Where the old run is the one before, it may be the first of them: then both are
    compared with the run before it.
    """
    between = before[0] if before and before[0].run.started > old.run.started else None
    earlier = before[1] if len(before) > 1 and before[0].run.id == old.run.id else None
    for number in new.by_cell.get(key, {}).values():
        base, first = (earlier, old) if earlier else (old, between)
        change = base.change(key, number)
        seen_first = first.by_cell.get(key, {}).get(number.name) if first else None
        was = base.change(key, seen_first) if seen_first else None
        is_confirmed = bool(change and was and was.effect is change.effect)
        if change and (is_confirmed or base is old):
            yield change.model_copy(update={"is_confirmed": is_confirmed})
        elif earlier and (change := old.change(key, number)):
            yield change


def _shift(old: Measurement, new: Measurement, measure: Measure) -> Estimate | None:
    """Return by how much a change against a reference is worse than that against the same one at another time.

    None where there is no such reference. The interval is that of a difference of two independent estimates (Zou and
    Donner, Statistics in Medicine 27, 2008).
    """
    if not old.reference or old.reference != new.reference or old.change is None or new.change is None:
        return None
    try:
        was, now = (
            sorted(measure.on_scale(each + measure.is_share) for each in side.change or ()) for side in (old, new)
        )
    except ValueError:
        return None
    center = now[1] - was[1]
    low = center - math.hypot(now[1] - now[0], was[2] - was[1])
    high = center + math.hypot(now[2] - now[1], was[1] - was[0])
    rounds = min(len(old.samples), len(new.samples))
    return Estimate(center=center, low=low, high=high, rounds=rounds) if math.isfinite(center) else None
