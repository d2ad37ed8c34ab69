"""The geometry of a page's pictures: numbers in, coordinates out; the template draws them.

Each picture is a mapping of the names that the template uses. Coordinates are in units of a picture WIDTH wide. A line
of numbers, over the environments of a run or over nights, has a narrower picture.
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
from whichtorch.bisect.search_request import AxisName
from whichtorch.model import Outcome
from whichtorch.reports.bisection_text import answer_blocks, cost, heading, probe_word, value_name
from whichtorch.reports.document import Paragraph, one_line, plain
from whichtorch.reports.numbers_text import in_words, level_words, step_words, value_words
from whichtorch.reports.page.grid import WHAT, Column, Grid

if TYPE_CHECKING:
    from whichtorch.bisect.bisection import Bisection
    from whichtorch.model import Effect, Measurement
    from whichtorch.records.compare.nights import Night, NumberNights
    from whichtorch.search.search_state import SearchVerdict

    Picture = Mapping[str, Any]

WIDTH = 960  # of all pictures, in units of their own
STEP = 26  # height of one probe
TICKS = 240  # values up to which each has a tick
NIGHTS = 60  # the latest, which are drawn
SHORTEST = 0.01  # seconds: shorter times are drawn as this
LEFT, RIGHT = 300, 920  # x of the first and last value of a version line; words stand before
LINE_LEFT, LINE_RIGHT, LINE_TICKS = 62, 472, 4  # of a line of numbers; its picture is 480 wide
TOP, BASE = 12, 112  # the same, in height
MOST_LINES = 24  # of a kind, those with changes first; more are counted
LABELS = 6  # along a line
_UNORDERED = {AxisName.LOCK, AxisName.CONFIG, AxisName.BUILD}


def bisection_picture(bisection: Bisection) -> Picture:
    """Return a search as a page shows it."""
    return {
        "blocks": [Paragraph(heading(bisection)), *answer_blocks(bisection), Paragraph(cost(bisection))],
        "line": version_line(bisection),
        "command": bisection.command,
    }


def version_line(bisection: Bisection) -> Picture:
    """Return the picture of a search: probes numbered in the order they were made, and the bracket that narrows."""
    positions = {value: index for index, value in enumerate(bisection.values)}
    for probe in bisection.probes:
        positions.setdefault(probe.value, len(positions))
    is_ordered = bisection.axis not in _UNORDERED and not bisection.groups

    def x_of(position: int) -> float:
        last = len(positions) - 1
        return round(LEFT + (RIGHT - LEFT) * position / last, 1) if last > 0 else (LEFT + RIGHT) / 2

    def name_of(value: str) -> str:
        return one_line(value_name(bisection, value), 30)

    boundaries = [boundary for boundary in bisection.boundaries if {boundary.from_, boundary.to} <= positions.keys()]
    ends = [(positions[boundary.from_], positions[boundary.to]) for boundary in boundaries]
    order = {value: number for number, value in enumerate(bisection.order)}
    probes = sorted(bisection.probes, key=lambda probe: (order.get(probe.value, -1), positions[probe.value]))
    if not bisection.order:  # of a search that kept no order, the order of the values
        order = {probe.value: number for number, probe in enumerate(bisection.probes) if probe.purpose}
    verdicts: list[tuple[int, SearchVerdict]] = []
    steps: list[Picture] = []
    numbered = 0
    for probe in probes:
        verdicts.append((positions[probe.value], probe.verdict))
        title = (f"{probe.value} {probe.title}".strip(), probe_word(probe), probe.signature, probe.message)
        is_new = probe.value in order
        numbered += is_new
        bracket = _bracket(verdicts, ends[0], bisection) if ends and is_ordered else None
        steps.append(
            {
                "number": numbered if is_new else None,  # None for what was known before
                "value": one_line(value_name(bisection, probe.value), 34),
                "word": probe_word(probe),
                "title": one_line(": ".join(filter(None, title)), 200),
                "outcome": probe.outcome,
                "x": x_of(positions[probe.value]),
                "y": 36 + STEP * len(steps),
                "left": x_of(bracket[0]) if bracket else None,
                "right": x_of(bracket[1]) if bracket else None,
            }
        )
    values = list(positions)
    return {
        "base": 36 + STEP * len(steps) + 4,  # y of the line of values
        "ticks": [*map(x_of, range(len(values)))] if len(values) <= TICKS else [],
        "first": name_of(values[0]) if values else "",
        "last": name_of(values[-1]) if values else "",
        "steps": steps,
        "boundaries": [(x_of(old), x_of(new), name_of(values[old]), name_of(values[new])) for old, new in ends],
        "is_ordered": is_ordered,
    }


def _bracket(
    verdicts: Sequence[tuple[int, SearchVerdict]], ends: tuple[int, int], bisection: Bisection
) -> tuple[int, int] | None:
    """Return the nearest values on both sides of the boundary that were known to differ; None while there are none."""
    before, after = bisection.boundaries[0].change.sides
    low = [position for position, verdict in verdicts if verdict is before and position <= ends[0]]
    high = [position for position, verdict in verdicts if verdict is after and position >= ends[1]]
    return (max(low), min(high)) if low and high else None


def times(grid: Grid) -> Picture | None:
    """Return how long the cells took that ran, by environment; None where nothing ran.

    The scale is logarithmic. An environment is a box of quartiles, and each outcome is one path of dots.
    """
    columns: list[list[tuple[float, Outcome]]] = [[] for _ in grid.columns]
    for entry in grid.entries:
        if entry.cell.attempts:
            columns[entry.column.index].append((entry.cell.seconds, entry.cell.outcome))
    all_seconds = [seconds for ran in columns for seconds, _ in ran if seconds > 0]
    if not all_seconds:
        return None
    base, top, left = 260, 16, 56
    scale = _scale(max(min(all_seconds), SHORTEST), max(max(all_seconds), SHORTEST))
    low, high = math.log10(scale[0]), math.log10(scale[-1])

    def y_of(seconds: float) -> float:
        share = (math.log10(max(seconds, SHORTEST)) - low) / (high - low)
        return round(base - (base - top) * min(1, max(0, share)), 1)

    width = (WIDTH - left - 8) / len(grid.columns)
    spread = min(width * 0.7, 60)
    dots: dict[Outcome, list[str]] = {}
    strips = []
    for index, (column, ran) in enumerate(zip(grid.columns, columns, strict=True)):
        if not ran:
            continue
        x = left + width * index + width / 2
        ordered = sorted(seconds for seconds, _ in ran)
        quartiles = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.25, 0.5, 0.75)]
        strips.append(
            {
                "label": f"{plain(column.environment.torch)} {column.title}".strip(),
                "x": round(x, 1),
                "width": round(spread, 1),
                **dict(zip(("low", "middle", "high"), map(y_of, quartiles), strict=True)),
                "median": f"{quartiles[1]:.1f} s",
            }
        )
        for number, (seconds, outcome) in enumerate(ran):
            # a fixed pattern instead of chance, so that a page is the same however often it is made
            shift = ((number * 0.618034) % 1 - 0.5) * spread
            dots.setdefault(outcome, []).append(f"M{x + shift:.1f} {y_of(seconds)}h0")
    return {
        "height": base + 20 + (14 if len(grid.columns) <= 16 else 0),
        "base": base,
        "strips": strips,
        "paths": [(outcome, "".join(dots[outcome])) for outcome in Outcome if outcome in dots],
        "lines": [(y_of(seconds), f"{seconds:g} s") for seconds in scale],  # of the scale
    }


def _scale(shortest: float, longest: float) -> list[float]:
    """Return round numbers of seconds, 1, 2 and 5 of each power of ten, with all times between the first and last."""
    powers = range(math.floor(math.log10(shortest)), math.ceil(math.log10(longest)) + 1)
    steps = [float(f"{step}e{power}") for power in powers for step in (1, 2, 5)]
    first = max(index for index, step in enumerate(steps) if step <= shortest)
    last = next((index for index, step in enumerate(steps) if step >= longest and index > first), len(steps) - 1)
    return steps[first : last + 1]


def hangs_over_nights(nights: Sequence[Night]) -> Picture | None:
    """Return how many cells hung in each run, and how many were red otherwise; None where there is one run only."""
    shown = nights[-NIGHTS:]
    if len(shown) < 2:
        return None
    base, top_y, left = 170, 18, 56
    hangs = [night.outcomes.get(Outcome.HANG, 0) for night in shown]
    red = [sum(count for outcome, count in night.outcomes.items() if outcome.is_red) for night in shown]
    top = max(1, *red)
    width = (WIDTH - left - 8) / len(shown)
    every = math.ceil(len(shown) / 12)
    bars = []
    for index, night in enumerate(shown):
        hang_height = (base - top_y) * hangs[index] / top
        red_height = (base - top_y) * (red[index] - hangs[index]) / top
        bars.append(
            {
                "x": round(left + width * index + width * 0.15, 1),
                "width": round(width * 0.7, 1),
                "hang_y": round(base - hang_height, 1),
                "hang_height": round(hang_height, 1),
                "red_y": round(base - hang_height - red_height, 1),
                "red_height": round(red_height, 1),
                "hangs": hangs[index],
                "red": red[index] - hangs[index],
                "cells": night.cells,
                "day": one_line(night.run.started[:10], 10),
                "has_label": (len(shown) - 1 - index) % every == 0,
            }
        )
    return {"base": base, "bars": bars, "top": top, "left_out": len(nights) - len(shown)}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A number on a line."""

    label: str
    value: float
    low: float  # the ends of its whisker
    high: float
    effect: Effect | None = None
    title: str = ""


def over_environments(grid: Grid) -> tuple[Sequence[Picture], int]:
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


def over_nights(numbers: Sequence[NumberNights]) -> tuple[Sequence[Picture], int]:
    """Return a line for each number with two nights and more, and how many are left out.

    A point is the change from the reference of the same night; a whisker is its interval.
    """
    several = [each for each in numbers if len(each.nights) > 1]
    chosen = sorted(several, key=lambda each: -len(each.changes))[:MOST_LINES]
    return [line for line in map(_night_line, chosen) if line], len(several) - len(chosen)


def _night_line(numbers: NumberNights) -> Picture | None:
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
    ticks = _round_numbers(min(point.low for point in points), max(point.high for point in points))
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
        "labels": [(min(x, LINE_RIGHT - 26), one_line(point.label, 16)) for x, point in places[::-1][::every]],
        "lines": [(y_of(tick), words(tick)) for tick in ticks],
        "marks": [],
        "changes": [],
        "note": "",
    }


def _xs(count: int) -> list[float]:
    margin = min(30.0, (LINE_RIGHT - LINE_LEFT) / (2 * count))
    step = (LINE_RIGHT - LINE_LEFT - 2 * margin) / max(1, count - 1)
    return [round(LINE_LEFT + margin + step * place, 1) for place in range(count)]


def _round_numbers(low: float, high: float) -> list[float]:
    """Return a few round numbers, with all values between the first and the last."""
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / LINE_TICKS))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power * LINE_TICKS >= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [tick * step for tick in range(first, max(last, first + 1) + 1)]
