"""The geometry of a page's pictures: numbers in, coordinates out; the template draws them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matrix.bisect.axis import AxisName
from matrix.model import Outcome
from reports.bisection_text import short, word
from reports.page.grid import LETTERS
from reports.plain import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.bisect.bisection import Bisection, Probe
    from matrix.bisect.strategy.evidence import SearchVerdict
    from matrix.compare.nights import Night
    from reports.page.grid import Grid

WIDTH = 960  # of all pictures, in units of their own
STEP = 26  # height of one probe
TICKS = 240  # values up to which each has a tick
NIGHTS = 60  # the latest that are drawn
SHORTEST = 0.01  # seconds that are told apart
_LEFT, _RIGHT = 300, 40  # of the version line: room for words, and for the last mark
_UNORDERED = {AxisName.LOCK, AxisName.CONFIG, AxisName.BUILD}


@dataclass(frozen=True, slots=True, kw_only=True)
class PathStep:
    """A probe of a bisection: where it lies, and how far the bracket had come with it."""

    number: int | None  # None for what was known before
    value: str
    word: str
    title: str
    kind: str  # outcome, for colour and shape
    purpose: str
    x: float
    y: float
    left: float | None  # bracket after it; None while there is none
    right: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionLine:
    """The picture of a bisection: values from left to right, probes from top to bottom."""

    height: int
    base: int  # where the line of values lies
    left: int
    right: int
    ticks: tuple[float, ...]
    first: str
    last: str
    steps: tuple[PathStep, ...]
    boundaries: tuple[tuple[Any, ...], ...]  # from, to, and what they are called
    is_ordered: bool


def version_line(found: Bisection) -> VersionLine:
    """Return the picture of a search: probes numbered in the order they were made, and the bracket that narrows."""
    places = {value: place for place, value in enumerate(found.values)}
    for probe in found.probes:
        places.setdefault(probe.value, len(places))
    is_ordered = found.axis not in _UNORDERED and not found.groups
    span = max(1, len(places) - 1)
    right = WIDTH - _RIGHT

    def x_of(place: int) -> float:
        return round(_LEFT + (right - _LEFT) * place / span, 1) if len(places) > 1 else (_LEFT + right) / 2

    order = {value: number for number, value in enumerate(found.order)}
    probes = sorted(found.probes, key=lambda probe: (order.get(probe.value, -1), places[probe.value]))
    if not found.order:  # of a search that kept no order, the order of the values
        order = {probe.value: number for number, probe in enumerate(found.probes) if probe.purpose}
    ends = [(places[one.from_], places[one.to]) for one in found.boundaries if {one.from_, one.to} <= places.keys()]
    seen: list[tuple[int, SearchVerdict]] = []
    steps = []
    numbered = 0
    for at, probe in enumerate(probes):
        seen.append((places[probe.value], probe.verdict))
        is_new = probe.value in order
        numbered += is_new
        bracket = _bracket(seen, ends[0], found) if ends and is_ordered else None
        steps.append(
            PathStep(
                number=numbered if is_new else None,
                value=one_line(short(found, probe.value), 34),
                word=word(probe),
                title=one_line(_probe_title(probe), 200),
                kind=probe.outcome.value,
                purpose=str(probe.purpose or "known before"),
                x=x_of(places[probe.value]),
                y=36 + STEP * at,
                left=x_of(bracket[0]) if bracket else None,
                right=x_of(bracket[1]) if bracket else None,
            )
        )
    base = 36 + STEP * len(steps) + 4
    values = list(places)
    return VersionLine(
        height=base + 48,
        base=base,
        left=_LEFT,
        right=right,
        ticks=tuple(x_of(place) for place in range(len(places))) if len(places) <= TICKS else (),
        first=one_line(short(found, values[0]), 30) if values else "",
        last=one_line(short(found, values[-1]), 30) if values else "",
        steps=tuple(steps),
        boundaries=tuple(
            (x_of(before), x_of(after), *(one_line(short(found, values[end]), 30) for end in (before, after)))
            for before, after in ends
        ),
        is_ordered=is_ordered,
    )


def _probe_title(probe: Probe) -> str:
    parts = (f"{probe.value} {probe.title}".strip(), word(probe), probe.signature, probe.message)
    return ": ".join(part for part in parts if part)


def _bracket(
    seen: Sequence[tuple[int, SearchVerdict]], ends: tuple[int, int], found: Bisection
) -> tuple[int, int] | None:
    """Return the nearest values on both sides of the boundary that were known to differ, None while there are none."""
    before, after = found.boundaries[0].change.sides
    low = [place for place, verdict in seen if verdict is before and place <= ends[0]]
    high = [place for place, verdict in seen if verdict is after and place >= ends[1]]
    return (max(low), min(high)) if low and high else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """How long the cells of one environment took."""

    label: str
    x: float
    width: float
    low: float  # quartiles
    middle: float
    high: float
    median: str  # in words


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """The picture of seconds per cell, on a logarithmic scale; each outcome is one path of dots."""

    height: int
    base: int
    left: int
    strips: tuple[Strip, ...]
    paths: tuple[tuple[str, str, str], ...]  # outcome, letter, path
    lines: tuple[tuple[float, str], ...]  # of the scale


def times(grid: Grid) -> Times | None:
    """Return how long the cells took that ran, by environment; None where nothing ran."""
    seconds = [
        [
            (square.cell.seconds, square.cell.outcome)
            for row in grid.rows
            if (square := row.squares[place]) and square.cell.attempts
        ]
        for place in range(len(grid.columns))
    ]
    ran = [one for those in seconds for one, _ in those if one > 0]
    if not ran:
        return None
    base, top, left = 260, 16, 56
    scale = _scale(max(min(ran), SHORTEST), max(max(ran), SHORTEST))
    low, high = math.log10(scale[0]), math.log10(scale[-1])

    def y_of(one: float) -> float:
        share = (math.log10(max(one, SHORTEST)) - low) / (high - low)
        return round(base - (base - top) * min(1, max(0, share)), 1)

    width = (WIDTH - left - 8) / len(grid.columns)
    dots: dict[Outcome, list[str]] = {}
    strips = []
    for place, those in enumerate(seconds):
        x = left + width * place
        if not those:
            continue
        ordered = sorted(one for one, _ in those)
        quartiles = [ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.25, 0.5, 0.75)]
        strips.append(
            Strip(
                label=f"{plain(grid.columns[place].environment.torch)} {grid.columns[place].title}".strip(),
                x=round(x + width / 2, 1),
                width=round(min(width * 0.7, 60), 1),
                low=y_of(quartiles[0]),
                middle=y_of(quartiles[1]),
                high=y_of(quartiles[2]),
                median=f"{quartiles[1]:.1f} s",
            )
        )
        spread = min(width * 0.7, 60)
        for number, (one, outcome) in enumerate(those):
            # a fixed pattern instead of chance, so that a page is the same however often it is made
            shift = ((number * 0.618034) % 1 - 0.5) * spread
            dots.setdefault(outcome, []).append(f"M{x + width / 2 + shift:.1f} {y_of(one)}h0")
    return Times(
        height=base + 20 + (14 if len(grid.columns) <= 16 else 0),
        base=base,
        left=left,
        strips=tuple(strips),
        paths=tuple(
            (outcome.value, LETTERS[outcome], "".join(dots[outcome])) for outcome in Outcome if outcome in dots
        ),
        lines=tuple((y_of(one), f"{one:g} s") for one in scale),
    )


def _scale(shortest: float, longest: float) -> list[float]:
    """Return the round numbers of seconds, 1, 2 and 5 of each power of ten, that hold all times between them."""
    powers = range(math.floor(math.log10(shortest)), math.ceil(math.log10(longest)) + 1)
    steps = [float(f"{step}e{power}") for power in powers for step in (1, 2, 5)]
    first = max(place for place, one in enumerate(steps) if one <= shortest)
    last = next((place for place, one in enumerate(steps) if one >= longest and place > first), len(steps) - 1)
    return steps[first : last + 1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One night."""

    x: float
    width: float
    hang_y: float
    hang_height: float
    red_y: float
    red_height: float
    hangs: int
    red: int  # that do not hang
    cells: int
    day: str
    has_label: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Nights:
    """The picture of hangs, and of other red cells, from run to run."""

    height: int
    base: int
    left: int
    bars: tuple[Bar, ...]
    top: int  # count at the top of the scale
    left_out: int


def hangs_over_nights(nights: Sequence[Night]) -> Nights | None:
    """Return how many cells hung in each run; None where there is one run only."""
    shown = nights[-NIGHTS:]
    if len(shown) < 2:
        return None
    base, top_y, left = 170, 18, 56
    counts = []
    for night in shown:
        red = sum(count for outcome, count in night.outcomes.items() if outcome.is_red and outcome is not Outcome.HANG)
        counts.append((night.outcomes.get(Outcome.HANG, 0), red))
    top = max(1, *(hangs + red for hangs, red in counts))
    width = (WIDTH - left - 8) / len(shown)
    every = math.ceil(len(shown) / 12)
    bars = []
    for place, (night, (hangs, red)) in enumerate(zip(shown, counts, strict=True)):
        hang_height = (base - top_y) * hangs / top
        red_height = (base - top_y) * red / top
        bars.append(
            Bar(
                x=round(left + width * place + width * 0.15, 1),
                width=round(width * 0.7, 1),
                hang_y=round(base - hang_height, 1),
                hang_height=round(hang_height, 1),
                red_y=round(base - hang_height - red_height, 1),
                red_height=round(red_height, 1),
                hangs=hangs,
                red=red,
                cells=night.cells,
                day=one_line(night.run.started[:10], 10),
                has_label=(len(shown) - 1 - place) % every == 0,
            )
        )
    return Nights(height=base + 30, base=base, left=left, bars=tuple(bars), top=top, left_out=len(nights) - len(shown))
