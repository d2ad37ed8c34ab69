"""The geometry of a page's lines of numbers: over the environments of a run, and over nights.

A line is a mapping of the names that the template uses. Coordinates are in units of a picture WIDTH wide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

from whichtorch.base.grouping import counted, grouped
from whichtorch.reports.numbers_text import in_words, level_words, step_words, value_words
from whichtorch.reports.page.grid import WHAT, Column, Grid
from whichtorch.reports.shown_text import one_line, plain

if TYPE_CHECKING:
    from whichtorch.model import Effect, Measurement
    from whichtorch.records.compare.number_nights import NumberNights

    Line = Mapping[str, Any]

WIDTH, LEFT, RIGHT = 480, 62, 472
TOP, BASE = 12, 112
MOST_LINES = 24  # of a kind, those with changes first; more are counted
LABELS = 6  # along a line
TICKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A number on a line."""

    label: str
    value: float
    low: float  # the ends of its whisker
    high: float
    effect: Effect | None = None
    title: str = ""


def over_environments(grid: Grid) -> tuple[Sequence[Line], int]:
    """Return a line for each number of a test over the environments, and how many are left out.

    A point is the median of its runs; a whisker is their middle half.
    """
    numbers = [(entry.row, number, entry.column) for entry in grid.entries for number in entry.cell.numbers]
    drawn = []
    for (test, name), own in grouped(numbers, lambda each: (each[0], each[1].name)).items():
        points = [_measured(number, column) for _, number, column in own if math.isfinite(number.value)]
        if points:
            changes = sum(point.effect is not None and point.effect.counts for point in points)
            drawn.append((-changes, f"{name} of {test}", points, partial(value_words, unit=own[0][1].unit)))
    drawn.sort(key=itemgetter(0))
    lines = [
        _line(title, counted(len(points), "environment"), points, words)
        for _, title, points, words in drawn[:MOST_LINES]
    ]
    return lines, len(drawn) - len(lines)


def _measured(number: Measurement, column: Column) -> _Point:
    finite = [sample for sample in number.samples if math.isfinite(sample)]
    low, _, high = quantiles(finite, n=4) if len(finite) > 1 else (number.value,) * 3
    against = f", {in_words(number.change, number)}" if number.reference else ""
    return _Point(
        label=f"{plain(column.environment.torch)} {column.title}".strip(),
        value=number.value,
        low=min(low, number.value),
        high=max(high, number.value),
        effect=number.effect,
        title=f"{column.label}: {value_words(number.value, number.unit)}{against}, "
        f"{counted(len(number.samples), 'run')}",
    )


def over_nights(numbers: Sequence[NumberNights]) -> tuple[Sequence[Line], int]:
    """Return a line for each number with two nights and more, and how many are left out.

    A point is the change from the reference of the same night; a whisker is its interval.
    """
    several = [each for each in numbers if len(each.nights) > 1]
    chosen = sorted(several, key=lambda each: -len(each.changes))[:MOST_LINES]
    return [line for line in map(_night_line, chosen) if line], len(several) - len(chosen)


def _night_line(numbers: NumberNights) -> Line | None:
    points = [
        _Point(label=night.started[:10], value=middle, low=low, high=high)
        for night in numbers.nights
        for middle, low, high in [night.change or (night.value,) * 3]
        if math.isfinite(low) and math.isfinite(high)
    ]
    if not points:
        return None
    against = f"against {numbers.reference}, " if numbers.reference else ""
    small = f"in {numbers.environment}, {against}{counted(len(points), 'night')}"
    line = _line(f"{numbers.name} of {numbers.test}", small, points, partial(level_words, numbers))
    places = dict(zip((night.run for night in numbers.nights), _xs(len(points)), strict=False))
    marks = [(places[step.run], step.effect) for step in numbers.changes]
    changes = [step_words(numbers, step) for step in numbers.changes]
    return line | {"marks": marks, "changes": changes, "note": one_line(numbers.note, WHAT)}


def _line(title: str, small: str, points: Sequence[_Point], words: Callable[[float], str]) -> dict[str, Any]:
    """Return a line with whiskers; a single number is a dot."""
    ticks = _ticks(min(point.low for point in points), max(point.high for point in points))
    low, span = ticks[0], ticks[-1] - ticks[0]

    def y_of(value: float) -> float:
        return round(BASE - (BASE - TOP) * (value - low) / span, 1)

    xs = _xs(len(points))
    every = math.ceil(len(points) / LABELS)
    places = list(zip(xs, points, strict=True))
    return {
        "title": one_line(title, WHAT),
        "small": one_line(small, WHAT),
        "said": f"from {words(points[0].value)} to {words(points[-1].value)}, median "
        f"{words(median(point.value for point in points))}",
        "path": "M" + "L".join(f"{x:g} {y_of(point.value):g}" for x, point in places),
        "whiskers": "".join(
            f"M{x:g} {y_of(point.high):g}V{y_of(point.low):g}" for x, point in places if point.low < point.high
        ),
        "dots": [
            (x, y_of(point.value), point.effect if point.effect and point.effect.counts else "", point.title)
            for x, point in places
            if point.title
        ],
        "labels": [(min(x, RIGHT - 26), one_line(point.label, 16)) for x, point in places[::-1][::every]],
        "lines": [(y_of(tick), words(tick)) for tick in ticks],
        "marks": [],
        "changes": [],
        "note": "",
    }


def _xs(count: int) -> list[float]:
    margin = min(30.0, (RIGHT - LEFT) / (2 * count))
    step = (RIGHT - LEFT - 2 * margin) / max(1, count - 1)
    return [round(LEFT + margin + step * place, 1) for place in range(count)]


def _ticks(low: float, high: float) -> list[float]:
    """Return a few round numbers, with all values between the first and the last."""
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * TICKS >= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [tick * step for tick in range(first, max(last, first + 1) + 1)]
