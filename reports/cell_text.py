"""What every report says of a cell: what happened, how it went on the way, and where its files are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matrix.diagnosis.conditions import words
from matrix.model import Diagnosis, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from matrix.model import Attempt, Cell
    from matrix.records.stored_runs import StoredRun


def speaker(cell: Cell) -> Attempt | None:
    """Return the attempt that shows what came of a cell: the last with its outcome, else the last."""
    same = [attempt for attempt in cell.attempts if attempt.outcome is cell.outcome]
    return next(reversed(same or cell.attempts), None)


def what(cell: Cell) -> str:
    """Return what happened, in one line; "-" where nothing is known."""
    conflict = f" ({cell.conflict})" if cell.conflict else ""
    return (cell.what or cell.reason or "-") + conflict


def log_of(stored: StoredRun, cell: Cell) -> Path | None:
    """Return the file of what a cell wrote to stderr."""
    attempt = speaker(cell)
    return stored.file(attempt.stderr) if attempt and attempt.stderr else None


def stacks_of(stored: StoredRun, cell: Cell) -> Path | None:
    """Return the folder of the stacks that were read for a cell."""
    folder = next((attempt.stacks for attempt in reversed(cell.attempts) if attempt.diagnosis), "")
    return stored.file(folder) if folder else None


def details(cell: Cell) -> Iterator[str]:
    """Yield, beyond what happened, what is known of it: kind and place of a hang, its conditions, how often."""
    if cell.message:
        yield f"says: {cell.message}"
    hang = cell.diagnosis or Diagnosis()
    named = {"kind": hang.kind, "stage": hang.place, "operator": hang.operator, "dispatch key": hang.key}
    yield from (f"{title}: {text}" for title, text in named.items() if text)
    if seen := conditions_of(cell):
        yield seen
    if cell.flaky:
        yield f"flaky: {cell.flaky} attempts end so"


def conditions_of(cell: Cell) -> str:
    """Return what became of the conditions of a hang; "" where it declares none."""
    return words(cell.conditions) if cell.outcome is Outcome.HANG else ""
