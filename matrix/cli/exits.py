"""Exit codes, and which of them the cells of a run deserve."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from matrix.model import Cell


class Exit(IntEnum):
    """What the exit code says."""

    GOOD = 0
    RED = 1  # something hung, crashed, failed or ran out of memory that no scenario expects
    USAGE = 2
    PREVENTED = 3  # environments or the machine kept cells from running
    UNANSWERED = 4  # `explain` and `bisect` have too little to go by
    INTERRUPTED = 130


def exit_code(cells: Iterable[Cell]) -> Exit:
    """Return what the exit code says of the cells of a whole run."""
    cells = tuple(cells)
    if any(cell.outcome.is_red and not cell.expected for cell in cells):
        return Exit.RED
    if any(cell.outcome.is_prevented for cell in cells):
        return Exit.PREVENTED
    return Exit.GOOD
