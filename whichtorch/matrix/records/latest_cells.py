"""What came last of each test in each environment, on disk where these are many."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from whichtorch.matrix.model import Cell
from whichtorch.matrix.records.scratch import scratch_database

if TYPE_CHECKING:
    from collections.abc import Iterable

_TABLE = """
create table cells (name text, environment text, records text, cell blob, primary key (name, environment));
"""


class LatestCells:
    """The latest cell of each name in each environment, with the keys of the records it rests on."""

    def __init__(self) -> None:
        self._database = scratch_database(self, _TABLE)

    def add(self, name: str, cell: Cell, records: Iterable[str] = ()) -> None:
        """Add a cell, in place of an earlier one with this name in its environment."""
        row = name, cell.environment, json.dumps(list(records)), cell.model_dump_json().encode()
        self._database.execute("insert or replace into cells values (?, ?, ?, ?)", row)

    def of(self, name: str) -> list[tuple[Cell, frozenset[str]]]:
        """Return the cells with a name, each with its records' keys."""
        rows = self._database.execute("select cell, records from cells where name = ?", (name,)).fetchall()
        return [(Cell.model_validate_json(cell), frozenset(json.loads(records))) for cell, records in rows]
