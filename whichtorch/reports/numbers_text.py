"""Numbers that were measured, as lines of text: a table of environments, the curve of a search, and nights."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted, grouped
from whichtorch.measure.measure import change_words
from whichtorch.model import Effect
from whichtorch.reports.document import Code, Items, Table, screen
from whichtorch.reports.table import column_heads
from whichtorch.search.search_state import AnswerKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whichtorch.bisect.bisection import Bisection
    from whichtorch.model import Cell, Curve, Measurement, Quantity, Result, ValueChange
    from whichtorch.records.compare.comparison import NumberChange
    from whichtorch.records.compare.nights import LevelChange, NumberNights
    from whichtorch.reports.document import Block

WORDS = {Effect.WORSE: "worse", Effect.BETTER: "better", Effect.DIFFERENT: "different", Effect.UNDECIDED: "?"}
LEAST_HEAP = 2  # values of a heap: one is an outlier
GAP = 3.0  # times the width of the wider heap
SMALL = 0.05  # share of a value that is no width
ROUNDING = 0.005  # of shares
BARS, BARS_SHOWN = "▁▂▃▄▅▆▇█", 60


def number_lines(result: Result, notes: Iterable[str], width: int) -> Iterator[str]:
    """Yield for each test the numbers of its environments, each with its change from the first one."""
    shared, _ = column_heads(result.environments)
    yield from ("", f"Everywhere: {shared}", "") if shared else ("",)
    yield from screen(number_blocks(result), width)
    yield from (f"note: {note}" for note in notes)


def number_blocks(result: Result, rank: int = 0) -> Iterator[Block]:
    """Yield for each test a table of its numbers, why environments have none, and how small a difference would show."""
    _, heads = column_heads(result.environments)
    places = {each.id: head.replace("\n", " ") for each, head in zip(result.environments, heads, strict=True)}
    for test, cells in grouped(result.cells, lambda cell: cell.name).items():
        measures = list(dict.fromkeys(number.name for cell in cells for number in cell.numbers))
        rows = []
        for cell in cells:
            own = {number.name: "  ".join(filter(None, shown_number(number))) for number in cell.numbers}
            rows.append([places[cell.environment], *(own.get(measure, "") for measure in measures)])
        if measures:
            yield Table([Code(test), *measures], rows, rank=rank)
        reasons = [f"{places[each.environment]}: {each.reason}" for each in cells if each.reason and not each.numbers]
        yield Items([*reasons, *(_resolution(measure, cells) for measure in measures)], rank)


def shown_number(number: Measurement) -> tuple[str, str, str]:
    """Return a number, its change with the interval, and a word where the change counts."""
    change = number.reference and in_words(number.change, number)
    values = " or ".join(value_words(value, number.unit) for value in heaps(number.samples) or (number.value,))
    shown = f"{values} ({number.basis})" if number.basis else values
    return shown, change, WORDS.get(number.effect, "") if number.effect else ""


def heaps(samples: Sequence[float]) -> tuple[float, float] | None:
    """Return the middles of two heaps, None where the samples are one: the gap is wider than each heap, by far."""
    values = sorted(samples)
    splits = range(LEAST_HEAP, len(values) - LEAST_HEAP + 1)
    at = max(splits, key=lambda split: values[split] - values[split - 1], default=0)
    low, high = values[:at], values[at:]
    if not at or high[0] - low[-1] <= GAP * max(low[-1] - low[0], high[-1] - high[0], SMALL * abs(low[-1])):
        return None
    return median(low), median(high)


def in_words(change: ValueChange | None, of: Quantity) -> str:
    """Return a change of a number with its interval, as a share or in the number's unit."""
    return change_words(change, of.unit, is_share=of.is_share)


def value_words(value: float, unit: str) -> str:
    """Return a value with its unit."""
    return f"{value:.4g} {unit}" if unit else f"{value:.8g}"


def _resolution(measure: str, cells: Sequence[Cell]) -> str:
    """Return how small a difference could have been seen, what more runs would show, and what the machine did."""
    numbers = [number for cell in cells for number in cell.numbers if number.name == measure]
    compared = [number for number in numbers if number.change is not None]
    first, rounds = numbers[0], len(numbers[0].samples)
    disturbed = sum(number.disturbed for number in numbers)
    words = [f"{first.because}; {first.basis} decides"] if first.because else []
    words += [f"{counted(rounds, 'run')} of each", f"load {first.machine.load:g}"]
    if disturbed:
        words.append(f"{counted(disturbed, 'run')} more waited for a core, and did not count")
    if any(number.is_share and not _is_within(number, first) for number in compared):
        words.append("what decides is the change within a round, not that of the medians: rounds vary")
    if not compared:
        why = "nothing to compare"
        if any(number.reference for number in numbers):
            why = f"cannot be measured here: there was time for {counted(rounds, 'run')}"
        return f"{measure}: {'; '.join([*words, why])}"
    margin = max(_margin(number) for number in compared)
    least = f"differences below {_size(margin, first)} cannot be seen so"
    words.append(least if margin else "each environment gives the same number in all of its runs")
    if any(number.effect is Effect.UNDECIDED for number in compared):
        seconds = max(cell.seconds for cell in cells)
        words.append(f"as many runs again, {seconds:.0f} s, would show about {_size(margin / math.sqrt(2), first)}")
    return f"{measure}: {'; '.join(words)}"


def _margin(number: Measurement) -> float:
    """Return how small a difference can be seen: half the width of the interval, on the scale that it was made on."""
    _, low, high = number.change or (0.0,) * 3
    if number.is_share and low > -1:
        return math.expm1((math.log1p(high) - math.log1p(low)) / 2)
    return (high - low) / 2


def _is_within(number: Measurement, reference: Measurement) -> bool:
    """Return whether the medians differ as much as the interval says."""
    _, low, high = number.change or (0.0,) * 3
    return low - ROUNDING <= number.value / reference.value - 1 <= high + ROUNDING


def _size(value: float, of: Quantity) -> str:
    """Return the size of a change, as a share, a factor, or in the unit of the number."""
    if of.is_share and value > 1:
        return f"{1 + value:.3g} times"
    return f"{value * 100:.2g} %" if of.is_share else f"{value:.3g} {of.unit}".rstrip()


def answer_lines(result: Result) -> Iterator[str]:
    """Yield a sentence on each number: how it differs from the first environment's, or why that is not known."""
    labels = {environment.id: environment.label for environment in result.environments}
    for cell in result.cells:
        for number in cell.numbers:
            if number.change is None:
                continue
            change = in_words(number.change, number)
            least = _size(number.threshold, number)
            here, there = labels[cell.environment], number.reference
            match number.effect:
                case Effect.WORSE | Effect.BETTER | Effect.DIFFERENT:
                    what = f"{number.name} of {cell.name} is {WORDS[number.effect]} in {here}"
                    yield f"{what}: {change} against {there}{basis_words(number)}"
                case Effect.SAME:
                    what = f"{number.name} of {cell.name} differs by less than {least} in {here} and {there}"
                    yield f"{what}: {change}{basis_words(number)}"
                case _:
                    yield (
                        f"not known whether {number.name} of {cell.name} differs by {least} in {here} and {there}: "
                        f"{change}; the machine is too busy or too noisy for it (load {number.machine.load:g})"
                        f"{basis_words(number)}"
                    )


def basis_words(of: Quantity) -> str:
    """Return what decided instead of what was asked for, and why."""
    return f" ({of.basis}: {of.because})" if of.basis else ""


def curve_lines(search: Bisection, curve: Curve) -> Iterator[str]:
    """Yield the steps of a curve, or what it shows instead of one; what it does not show, and what the machine did."""
    for step in curve.steps:
        change = in_words(step.change, curve)
        unasked = next((each.unasked for each in search.boundaries if each.to == step.after), "")
        by = f" by {curve.basis}" if curve.basis else ""
        yield f"{curve.name} is {WORDS[step.effect]} in {step.after}{by}: {change} against {step.before}{unasked}"
    if not curve.steps:
        yield _without_step(search, curve, _measured(search, curve))
    for before, after in curve.alike:
        yield f"  note: no step of {_size(curve.threshold, curve)} was found between {before} and {after}"
    for reason, values in grouped(curve.missing.items(), lambda item: item[1]).items():
        yield f"  no evidence: {', '.join(value for value, _ in values)}: {reason}"
    if curve.because:
        yield f"  note: {curve.because}; {curve.basis} decides"
    yield f"  load {curve.machine.load:g} while it was measured"


def level_table(search: Bisection, curve: Curve) -> Iterator[Table]:
    """Yield each value that was measured, in order: its number, and the change from the first one."""
    measured = _measured(search, curve)
    rows = [
        (
            value,
            value_words(curve.values[value], curve.unit) if value in curve.values else "",
            in_words(curve.levels[value], curve) if value != measured[0] else "",
        )
        for value in measured
    ]
    if len(rows) > 2 or curve.steps:
        yield Table([search.axis, curve.name, f"against {measured[0]}"], rows)


def _measured(search: Bisection, curve: Curve) -> list[str]:
    return [value for value in search.values if value in curve.levels]


def _without_step(search: Bisection, curve: Curve, measured: Sequence[str]) -> str:
    """Return that no step was found: that nothing changed, that it changed gradually, or that it is not known."""
    if curve.total is None:
        return f"inconclusive: no two values with {curve.name} could be compared"
    change = in_words(curve.total, curve)
    total, least = f"{curve.name}: {change} from {measured[0]} to {measured[-1]}", _size(curve.threshold, curve)
    if search.answer is AnswerKind.INCONCLUSIVE:
        return f"inconclusive: {total}; where it changed is not known"
    return f"{total}, but no single step of {least}" if len(measured) > 2 else f"{total}: less than {least}"


def number_words(number: Measurement) -> str:
    """Return a number with its change from what was measured in turns with it."""
    change = f" {in_words(number.change, number)}" if number.reference else ""
    return f"{number.name} {value_words(number.value, number.unit)}{change}"


def number_change_words(number: NumberChange) -> str:
    """Return how a number differs from that of an earlier run, and whether two runs say so."""
    change = in_words(number.change, number)
    was, now = (in_words((each[0],) * 3, number) for each in (number.old, number.new))
    seen = "two runs in a row say so" if number.is_confirmed else "seen once: measure again, or wait for the next night"
    return (
        f"{number.name} is {WORDS[number.effect]} than in {number.since}: {change} "
        f"(against {number.reference} {was}, now {now}); {seen}"
    )


def number_night_lines(numbers: NumberNights) -> Iterator[str]:
    """Yield a number over the nights as a small line, and each change of its level."""
    against = f" against {numbers.reference}" if numbers.reference else ""
    heights = [night.value if night.change is None else night.change[0] for night in numbers.nights]
    low, high = min(heights), max(heights)
    yield (
        f"  {numbers.name} in {numbers.environment}{against}, {counted(len(heights), 'night')}: "
        f"{level_words(numbers, low)} {_bars(heights)} {level_words(numbers, high)}"
    )
    yield from (f"    {step_words(numbers, step)}" for step in numbers.changes)
    if numbers.note:
        yield f"    note: {numbers.note}"


def step_words(numbers: NumberNights, step: LevelChange) -> str:
    """Return from which night on a number has another level, and by how much."""
    change = in_words(step.change, numbers)
    return f"{WORDS[step.effect]} from {step.started[:10]} on, {step.run}: {change}"


def level_words(numbers: NumberNights, height: float) -> str:
    """Return a number of a night: its change where it has a reference."""
    return in_words((height,) * 3, numbers) if numbers.reference else value_words(height, numbers.unit)


def _bars(heights: Sequence[float]) -> str:
    """Return numbers as bars of text, the latest of them."""
    shown = [height for height in heights if math.isfinite(height)][-BARS_SHOWN:]
    low, high = min(shown, default=0.0), max(shown, default=0.0)
    is_flat = math.isclose(low, high, abs_tol=1e-9)  # but for the rounding of floats
    return "".join(BARS[0 if is_flat else round((each - low) / (high - low) * (len(BARS) - 1))] for each in shown)
