"""What a page knows of each cell beyond the grid, small enough for thousands of them.

Facts come first. What attempts wrote is cut to the bytes that are left, and what matters most gets them first.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.compare.comparison import ChangeKind
from matrix.compare.factors import factors_of
from matrix.model import Attempt, Cell, Condition, Diagnosis, Outcome, cycle_sentences
from reports import cell_text
from reports.page.cuts import ALL_REST, EACH, Excerpt, Rank, excerpts, fitted
from reports.page.environment_details import NAME_HERE, VALUE, NearestPasses, Strings, environment_details
from reports.page.grid import WHAT, Grid, GridRow, Square
from reports.page.page_data import (
    AttemptLine,
    CellDetails,
    HangDetails,
    OddAttempt,
    RowDetails,
    SharedDetails,
    SharedText,
    encoded,
)
from reports.shown_text import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matrix.compare.comparison import CellChange
    from matrix.records.stored_runs import StoredRun
    from reports.cell_text import Called
    from reports.page.cuts import Position

    Changes = Mapping[tuple[str, str], CellChange]  # by name and label

ATTEMPTS = 20  # of a cell that are shown; more are counted
EDGES = 12  # of who waits for whom
ENVIRONMENTS = 0.25  # share of a page that facts of environments may take
FEW_READ, MOST_READ = 2**12, 2**16  # bytes of each end of an output that are read

_CHANGED = {ChangeKind.REGRESSION, ChangeKind.NEW_FAILURE, ChangeKind.DIFFERENT}
_TEXTS: tuple[SharedText, ...] = ("reason", "message", "signature", "known")  # fields of a cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What is known of cells, before texts are added."""

    shared: SharedDetails
    rows: list[RowDetails]
    texts: dict[Position, list[Excerpt]]
    ranks: dict[Position, Rank]

    def lines(self, budget: int) -> Iterator[str]:
        """Yield the lines, with texts of at most `budget` bytes in all."""
        texts = fitted(self.texts, self.ranks, budget)
        yield encoded(self.shared)
        for number, row in enumerate(self.rows):
            cells = {
                column: details | ({"texts": texts[number, column]} if (number, column) in texts else {})
                for column, details in row["cells"].items()
            }
            yield encoded(row | {"cells": cells})

    def least(self) -> Iterator[str]:
        """Yield the lines without what is known of cells, for a run whose names alone fill a page."""
        yield encoded(self.shared | {"pairs": {}, "strings": []})
        yield from (encoded({"cells": {}}) for _ in self.rows)


def details_of(stored: StoredRun, grid: Grid, changes: Changes, called: Called, limit: int) -> Details:
    """Return what is known of all cells; `limit` is the bytes that the whole page may take."""
    factors = [factors_of(column.environment) for column in grid.columns]
    nearest = NearestPasses(factors)
    strings = Strings()
    rows: list[RowDetails] = []
    ranks: dict[Position, Rank] = {}
    cells: dict[Position, Cell] = {}
    for number, row in enumerate(grid.rows):
        details = _row(row)
        for square in filter(None, row.squares):
            cell, column = square.cell, square.column
            change = changes.get(grid.key_of(square))
            facts = _cell(cell, strings)
            if change is not None:
                facts["change"] = _change(change)
            if cell.outcome.is_red and (near := nearest.of(square, row)) is not None:
                facts["near"] = near
            details["cells"][column] = facts
            ranks[number, column] = _rank(square, change)
            cells[number, column] = cell
        rows.append(details)
    few_passes = sum(rank is Rank.REST for rank in ranks.values()) * EACH[Rank.REST] <= 4 * ALL_REST
    shown = {position: cell for position, cell in cells.items() if few_passes or ranks[position] is not Rank.REST}
    end = min(MOST_READ, max(FEW_READ, 2 * limit // max(1, len(shown))))
    texts = {position: found for position, cell in shown.items() if (found := _texts(stored, cell, end))}
    share = int(limit * ENVIRONMENTS / max(1, len(grid.columns)))
    environments = [
        environment_details(column.environment, facts, strings, share, called)
        for column, facts in zip(grid.columns, factors, strict=True)
    ]
    shared = SharedDetails(environments=environments, strings=list(strings.texts), pairs=nearest.pairs, here=NAME_HERE)
    return Details(shared=shared, rows=rows, texts=texts, ranks=ranks)


def _rank(square: Square, change: CellChange | None) -> Rank:
    cell = square.cell
    if cell.outcome.is_red:
        is_urgent = square.is_unexpected or cell.outcome is Outcome.HANG or (change and change.change in _CHANGED)
        return Rank.URGENT if is_urgent else Rank.RED
    is_doubted = cell.is_doubted or cell.outcome.is_prevented or square.is_unexpected or cell.outcome is Outcome.SLOW
    return Rank.DOUBTED if is_doubted else Rank.REST


def _row(row: GridRow) -> RowDetails:
    quoted = shlex.quote(plain(next(square.cell.name for square in row.squares if square)))
    details: RowDetails = {"cells": {}}
    if quoted != f"'{row.name}'":
        details["quoted"] = quoted
    if row.turning:
        details["turning"] = row.turning
    return details


def _texts(stored: StoredRun, cell: Cell, end: int) -> list[Excerpt]:
    attempt = cell_text.telling_attempt(cell)
    return list(excerpts(stored, attempt, end)) if attempt else []


def _cell(cell: Cell, strings: Strings) -> CellDetails:
    """Return what is known of a cell; of a plain pass next to nothing."""
    details: CellDetails = {"attempts": [_attempt(attempt) for attempt in cell.attempts[:ATTEMPTS]]}
    if len(cell.attempts) > ATTEMPTS:
        details["more"] = len(cell.attempts) - ATTEMPTS
    for name in _TEXTS:
        if text := getattr(cell, name):
            details[name] = strings.index_of(one_line(text, WHAT))
    if cell.conflict:
        conflict = f"The runs that were merged disagree: {cell.conflict}"
        details["conflict"] = strings.index_of(one_line(conflict, WHAT))
    if cell.conditions:
        details["conditions"] = [
            (result.met, one_line(condition_words(result.condition), WHAT), one_line(result.seen, WHAT))
            for result in cell.conditions
        ]
    attempt = cell_text.telling_attempt(cell)
    if attempt and (attempt.outcome is Outcome.HANG or attempt.diagnosis):
        details["hang"] = _hang(attempt)
    return details


def _attempt(attempt: Attempt) -> AttemptLine:
    odd: OddAttempt = {}
    if attempt.stopped_by != "exit":
        odd["stopped"], odd["limit"] = attempt.stopped_by, attempt.limit
    if attempt.exit_code:
        odd["exit"] = attempt.exit_code
    if attempt.signal:
        odd["signal"] = one_line(attempt.signal, VALUE)
    if attempt.note:
        odd["note"] = one_line(attempt.note, WHAT)
    if attempt.survivors:
        odd["survivors"] = [one_line(name, VALUE) for name in attempt.survivors[:EDGES]]
    numbers = [round(number, 1) for number in (attempt.seconds, attempt.cpu_seconds, attempt.peak_rss_mb)]
    return (str(attempt.outcome), *numbers, *([odd] if odd else []))


def _hang(attempt: Attempt) -> HangDetails:
    hang = attempt.diagnosis or Diagnosis()
    details: HangDetails = {}
    if hang.kind:
        details["kind"] = one_line(hang.kind, WHAT)
    if hang.summary:
        details["summary"] = one_line(hang.summary, WHAT)
    if hang.place:
        details["place"] = one_line(hang.place, WHAT)
    if edges := hang.cycle[:EDGES]:
        pairs = zip(cycle_sentences(edges), edges, strict=True)
        details["cycle"] = [(one_line(sentence, WHAT), one_line(edge.evidence, WHAT)) for sentence, edge in pairs]
    if hang.closed:
        details["closed"] = True
    return details


def _change(change: CellChange) -> dict[str, str | None]:
    details = {"kind": str(change.change), "was": str(change.old.outcome) if change.old else None}
    if change.old and change.old.signature and change.change is not ChangeKind.STILL_FAILING:
        details["signature"] = one_line(change.old.signature, WHAT)
    if change.why:
        details["why"] = one_line(change.why, WHAT)
    if change.script_changed:
        details["script"] = "the script changed, too"
    return details


def condition_words(condition: Condition) -> str:
    """Return what a header asks for, in words."""
    parts = [condition.op]
    parts += [f"under {condition.under}"] if condition.under else []
    parts += [f"with {', '.join(condition.keys)}"] if condition.keys else []
    if condition.grad_mode is not None:
        parts.append(f"with grad mode {'on' if condition.grad_mode else 'off'}")
    if condition.thread:
        parts.append("in the main thread" if condition.thread == "main" else "in another thread")
    if condition.python_key is not None:
        parts.append("with the Python key" if condition.python_key else "without the Python key")
    return " ".join(parts)
