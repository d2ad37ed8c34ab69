"""Numbers that were measured, as lines of text: a table of environments, and the curve of a search."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tabulate import tabulate

from whichtorch.matrix.grouping import counted, grouped
from whichtorch.matrix.measure.measure import change_words
from whichtorch.matrix.model import Effect
from whichtorch.reports.table import column_heads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from whichtorch.matrix.bisect.bisection import Bisection
    from whichtorch.matrix.model import Cell, Curve, Measurement, Result

WORDS = {Effect.WORSE: "worse", Effect.BETTER: "better", Effect.UNDECIDED: "?"}


def number_lines(result: Result, notes: Iterable[str]) -> Iterator[str]:
    """Yield for each test the numbers of its environments, each with its change from the first one."""
    shared, heads = column_heads(result.environments)
    places = {environment.id: head for environment, head in zip(result.environments, heads, strict=True)}
    yield ""
    if shared:
        yield f"Everywhere: {shared}"
        yield ""
    for name, cells in grouped(result.cells, lambda cell: cell.name).items():
        measures = dict.fromkeys(number.name for cell in cells for number in cell.numbers)
        rows = [
            [places[cell.environment].replace("\n", " "), *(_shown(cell, measure) for measure in measures)]
            for cell in cells
        ]
        if measures:
            yield from tabulate(rows, headers=[name, *measures], disable_numparse=True).splitlines()
        yield from (f"{places[cell.environment]}: {cell.reason}" for cell in cells if not cell.numbers and cell.reason)
        yield ""
        for measure in measures:
            yield resolution(measure, [each for cell in cells for each in cell.numbers if each.name == measure])
    yield from (f"note: {note}" for note in notes)


def _shown(cell: Cell, measure: str) -> str:
    """Return a number with its change, and a word where the change counts."""
    number = next((each for each in cell.numbers if each.name == measure), None)
    if number is None:
        return ""
    change = number.reference and change_words(number.change, number.unit, is_share=number.is_share)
    word = WORDS.get(number.effect, "") if number.effect else ""
    return "  ".join(filter(None, (value_words(number.value, number.unit), change, word)))


def value_words(value: float, unit: str) -> str:
    """Return a value with its unit."""
    return f"{value:.4g} {unit}".rstrip()


def resolution(measure: str, numbers: list[Measurement]) -> str:
    """Return how small a difference could have been seen, and what the machine did."""
    compared = [number for number in numbers if number.change is not None]
    rounds = counted(len(numbers[0].samples), "run") + " of each"
    if not compared:
        return f"{measure}: {rounds}; nothing to compare"
    margin = max((number.change[2] - number.change[1]) / 2 for number in compared if number.change)
    scale, unit = (100, " %") if compared[0].is_share else (1, f" {compared[0].unit}".rstrip())
    load = f"load {compared[0].machine.load:g}"
    words = [f"{measure}: {rounds}, started {compared[0].start}", load]
    words.append(f"differences below {margin * scale:.2g}{unit} cannot be seen so")
    open_ones = [number for number in compared if number.effect is Effect.UNDECIDED]
    if open_ones and margin > 0:
        factor = math.ceil((2 * margin / compared[0].threshold) ** 2) if compared[0].threshold else 2
        words.append(f"--rounds {len(numbers[0].samples) * max(2, factor)} would tell")
    drift = compared[0].drift
    if drift and (drift[1] > compared[0].threshold / 2 or drift[2] < -compared[0].threshold / 2):
        words.append(
            f"the machine drifts: {change_words(drift, compared[0].unit, is_share=compared[0].is_share)} a run"
        )
    return "; ".join(words)


def answer_lines(result: Result) -> Iterator[str]:
    """Yield a sentence on each number: how it differs from the first environment's, or why that is not known."""
    labels = {environment.id: environment.label for environment in result.environments}
    for cell in result.cells:
        for number in cell.numbers:
            if number.change is None:
                continue
            change = change_words(number.change, number.unit, is_share=number.is_share)
            least = change_size(number)
            here, there = labels[cell.environment], number.reference
            match number.effect:
                case Effect.WORSE | Effect.BETTER:
                    yield f"{number.name} of {cell.name} is {WORDS[number.effect]} in {here} than in {there}: {change}"
                case Effect.SAME:
                    yield f"{number.name} of {cell.name} differs by less than {least} in {here} and {there}: {change}"
                case _:
                    yield (
                        f"not known whether {number.name} of {cell.name} differs by {least} in {here} and {there}: "
                        f"{change}; the machine is too busy or too noisy for it (load {number.machine.load:g})"
                    )


def curve_lines(search: Bisection, curve: Curve) -> Iterator[str]:
    """Yield what a measured search has found: the steps, what is gradual, and the curve."""
    for step in curve.steps:
        change = change_words(step.change, curve.unit, is_share=curve.is_share)
        yield f"{curve.name} is {WORDS[step.effect]} in {step.after}: {change} against {step.before}"
    measured = [value for value in search.values if value in curve.levels]
    if not curve.steps and curve.total is not None and measured:
        change = change_words(curve.total, curve.unit, is_share=curve.is_share)
        least = change_size(curve)
        how = f"no single step of {least} was found" if curve.alike or len(measured) > 2 else f"less than {least}"
        yield f"{curve.name}: {change} from {measured[0]} to {measured[-1]}: {how}"
    if len(measured) > 2 or curve.steps:
        yield f"  what was measured, against {measured[0]}:"
        widest = max(map(len, measured))
        for value in measured:
            change = (
                change_words(curve.levels[value], curve.unit, is_share=curve.is_share) if value != measured[0] else ""
            )
            median = value_words(curve.values[value], curve.unit) if value in curve.values else ""
            yield f"    {value:<{widest}}  {median:<12} {change}".rstrip()
    for before, after in curve.alike:
        yield f"  note: {before} and {after} do not differ when they are compared with each other"
    for reason, values in grouped(curve.missing.items(), lambda item: item[1]).items():
        yield f"  no evidence: {', '.join(value for value, _ in values)}: {reason}"
    yield f"  load {curve.machine.load:g} while it was measured"


def change_size(of: Curve | Measurement) -> str:
    """Return the change that counts."""
    return f"{of.threshold * 100:g} %" if of.is_share else f"{of.threshold:g} {of.unit}".rstrip()
