"""What the page's filters offer, and what they need to know of every cell, in few bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.model import Outcome
from reports.page.grid import NAME, WHAT
from reports.page.page_data import FilterIndex, FilterRow
from reports.shown_text import one_line
from reports.table import AXES

if TYPE_CHECKING:
    from collections.abc import Collection

    from reports.page.grid import Grid, GridRow, Square

_UNEXPECTED, _CHANGED, _FLAKY, _DOUBTED, _TURNS = (1 << bit for bit in range(5))
_FLAGS = (  # name, bit, meaning
    ("unexpected", _UNEXPECTED, "not what the scenario's header expects"),
    ("changed", _CHANGED, "better or worse than in the earlier run"),
    ("flaky", _FLAKY, "attempts disagree"),
    ("doubted", _DOUBTED, "ended well, but not known to have done what it declares"),
    ("boundary", _TURNS, "red before and passing from here on, or the other way round"),
)
_DIGITS = "0123456789abcdefghijklmnopqrstuv"


@dataclass(frozen=True, slots=True, kw_only=True)
class Menu:
    """A filter with the values to choose from."""

    name: str
    title: str
    values: list[str]


def menus_of(grid: Grid) -> list[Menu]:
    """Return the filters that have more than one value."""
    tags = sorted({one_line(tag, NAME) for row in grid.rows if row.scenario for tag in row.scenario.tags})
    menus = [Menu(name="tag", title="tag", values=tags)]
    menus += [Menu(name=axis, title=title, values=grid.values(axis)) for axis, title in AXES.items()]
    return [menu for menu in menus if len(menu.values) > 1]


def flag_counts(index: FilterIndex) -> list[tuple[str, int, str]]:
    """Return name, number of cells and meaning of the flags that occur."""
    digits = Counter(digit for row in index["rows"] for digit in row.get("flags", ""))
    counts = [
        (name, sum(count for digit, count in digits.items() if _DIGITS.index(digit) & bit), meaning)
        for name, bit, meaning in _FLAGS
    ]
    return [row for row in counts if row[1]]


def index_of(grid: Grid, changed_cells: Collection[tuple[str, str]]) -> FilterIndex:
    """Return what filters need to know; `changed_cells` are those that are better or worse than before."""
    texts: dict[str, int] = {}
    rows = [_row(row, grid, changed_cells, texts) for row in grid.rows]
    columns: list[dict[str, str | int]] = []
    group = -1
    for column in grid.columns:
        group += column.opens
        columns.append({"label": column.label, "group": group, **column.axes})
    return FilterIndex(
        columns=columns,
        rows=rows,
        what=list(texts),
        outcomes={outcome.row.letter: outcome.value for outcome in Outcome},
        red="".join(outcome.row.letter for outcome in Outcome if outcome.is_red),
        total=sum(1 for _ in grid.squares),
    )


def _row(row: GridRow, grid: Grid, changed_cells: Collection[tuple[str, str]], texts: dict[str, int]) -> FilterRow:
    squares = [square for square in row.squares if square]
    facts = FilterRow(
        name=row.name,
        letters="".join(square.letter if square else "-" for square in row.squares),
        seconds=max((round(square.cell.seconds, 1) for square in squares), default=0),
    )
    if row.summary:
        facts["summary"] = texts.setdefault(row.summary, len(texts))
    if row.scenario and row.scenario.tags:
        facts["tags"] = [one_line(tag, NAME) for tag in row.scenario.tags]
    flags = [_flags(square, grid.key_of(square) in changed_cells) if square else 0 for square in row.squares]
    if any(flags):
        facts["flags"] = "".join(_DIGITS[bits] for bits in flags)
    what = {square.column: one_line(text, WHAT) for square in squares if (text := _text(square))}
    if what:
        facts["what"] = {column: texts.setdefault(text, len(texts)) for column, text in what.items()}
    flaky = {square.column: square.cell.flaky for square in squares if square.cell.flaky}
    if flaky:
        facts["flaky"] = flaky
    return facts


def _text(square: Square) -> str | None:
    """Return what a cell can be found by besides its name."""
    cell = square.cell
    if cell.outcome is Outcome.PASS and not square.is_unexpected:
        return None
    return ": ".join(filter(None, (cell.what, cell.message))) or cell.reason


def _flags(square: Square, is_changed: bool) -> int:
    return (
        _UNEXPECTED * square.is_unexpected
        | _CHANGED * is_changed
        | _FLAKY * bool(square.cell.flaky)
        | _DOUBTED * square.cell.is_doubted
        | _TURNS * square.turns
    )
