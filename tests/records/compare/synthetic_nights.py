"""A year of nights that is made up: cells with noise, disturbed nights, flaky cells, and planted steps."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tests.results import FAIL, PASS, cell, environment, result
from whichtorch.model import Cell, Measurement, Result
from whichtorch.records.compare.nights import ChangePoint
from whichtorch.search.step_search import Threshold

FLAKY = 0.05  # of the cells: they have no number in a fifth of the nights; of all nights: so many are disturbed
THRESHOLD = Threshold(size=math.log1p(0.05))
NEAR = 3  # nights by which a step may be misplaced


@dataclass(kw_only=True)
class Year:
    """The logarithms of numbers, by cell and night; None where a cell failed."""

    seed: int
    nights: int = 365
    cells: int = 150
    steps: int = 12
    planted: dict[int, tuple[int, float]] = field(default_factory=dict)  # by cell: night and size
    numbers: list[list[float | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        dice = random.Random(self.seed)
        for place in dice.sample(range(self.cells), self.steps):
            size = math.log1p(dice.uniform(0.05, 0.3))
            self.planted[place] = dice.randrange(10, self.nights - 10), dice.choice((-1, 1)) * size
        for place in range(self.cells):
            night, size = self.planted.get(place, (self.nights, 0.0))
            noise, fails = dice.uniform(0.005, 0.03), 0.2 if dice.random() < FLAKY else 0.0
            row: list[float | None] = []
            for at in range(self.nights):
                disturbed = dice.uniform(0.05, 0.5) if dice.random() < FLAKY else 0.0
                number = dice.gauss(size if at >= night else 0.0, noise) + disturbed
                row.append(None if dice.random() < fails else number)
            self.numbers.append(row)


def found_in(year: Year, search: Callable[[Sequence[float], Threshold], list[ChangePoint]]) -> tuple[int, int]:
    """Return how many steps of a year a search finds, and how many that are none."""
    right = wrong = 0
    for place, row in enumerate(year.numbers):
        nights = [night for night, number in enumerate(row) if number is not None]
        found = [
            (nights[point.night], point.shift.center)
            for point in search([number for number in row if number is not None], THRESHOLD)
        ]
        night, size = year.planted.get(place, (-year.nights, 0.0))
        good = [at for at, shift in found if abs(at - night) <= NEAR and shift * size > 0]
        right += bool(good)
        wrong += len(found) - bool(good)
    return right, wrong


def night_of(year: Year, at: int) -> Result:
    """Return a night as a run: the reference, and a nightly with the numbers of all cells."""
    reference, nightly = environment("2.9.1"), environment(f"2.16.0.dev2026{at:04}")
    cells: list[Cell] = []
    for place, row in enumerate(year.numbers):
        number, name = row[at], f"family{place // 10}/case{place}"
        cells.append(cell(reference, PASS, name, numbers=(measurement(0.0, ""),)))
        if number is None:
            cells.append(cell(nightly, FAIL, name))
        else:
            cells.append(cell(nightly, PASS, name, numbers=(measurement(number, reference.label),)))
    return result([reference, nightly], cells)


def measurement(level: float, reference: str, **fields: object) -> Measurement:
    """Return a number that is larger than a reference's by the logarithm `level`."""
    share = math.expm1(level)
    samples = [0.2 * (1 + share) * (1 + jitter / 100) for jitter in (-2, -1, 0, 0, 1, 2)]
    values: dict[str, object] = {
        "name": "wall",
        "unit": "s",
        "value": 0.2 * (1 + share),
        "samples": samples,
        "reference": reference,
        "change": (share, share - 0.01, share + 0.01) if reference else None,
        "threshold": 0.05,
    }
    return Measurement.model_validate(values | fields)
