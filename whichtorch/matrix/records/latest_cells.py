"""The latest cell of each test in each environment."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from whichtorch.matrix.records.line_index import LineIndex
from whichtorch.matrix.records.store import CELLS

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from whichtorch.matrix.model import Cell

    Latest = tuple[Cell, frozenset[str]]  # with the keys of the records it rests on


class LatestCells:
    """The latest cell of each name in each environment: those of all runs below `home`, and those added since."""

    def __init__(self, home: Path | None = None) -> None:
        self._stored = LineIndex(CELLS, home)
        self._added: defaultdict[str, dict[str, Latest]] = defaultdict(dict)  # by name, then by environment

    def add(self, name: str, cell: Cell, records: Iterable[str] = ()) -> None:
        """Add a cell, in place of an earlier one with this name in its environment."""
        self._added[name][cell.environment] = cell, frozenset(records)

    def of(self, name: str) -> list[Latest]:
        """Return the cells with a name, each with its records' keys."""
        lines = self._stored.latest("environment", "name = :name", name=name)
        stored = {environment: (line.cell, frozenset(line.records)) for environment, line in lines.items()}
        return list((stored | self._added[name]).values())
