"""Cells from night to night: what each stored run made of them."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pydantic import Field

from whichtorch.matrix.compare.comparison import stream
from whichtorch.matrix.model import Cell, Environment, Model, Outcome, Result, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.records.store import RunFolder


class Night(Model):
    """What one run made of the cells of another."""

    run: Run
    cells: int
    outcomes: dict[Outcome, int]


class NightCell(Model):
    """A cell as one run left it."""

    run: Run
    environment: Environment
    cell: Cell


class Histories(Model):
    """What `history --json` writes: the cells of runs, oldest first, by name."""

    schema_: int = Field(default=1, alias="schema")
    histories: dict[str, list[NightCell]]


def nights(result: Result, before: Sequence[RunFolder]) -> tuple[Night, ...]:
    """Return what earlier runs, then this one, made of this one's cells; runs without any of them are left out.

    A nightly is compared with the nightlies of the other runs.
    """
    streams = _streams(result)
    names = {(streams[cell.environment], cell.name) for cell in result.cells}
    counted = [_night(other, names) for other in (*(head.read().result for head in before), result)]
    return tuple(night for night in counted if night.cells)


def _night(result: Result, names: set[tuple[str, str]]) -> Night:
    streams = _streams(result)
    cells = [cell for cell in result.cells if (streams.get(cell.environment, ""), cell.name) in names]
    return Night(run=result.run, cells=len(cells), outcomes=dict(Counter(cell.outcome for cell in cells)))


def _streams(result: Result) -> dict[str, str]:
    return {environment.id: stream(environment) for environment in result.environments}


def history(name: str, heads: Sequence[RunFolder]) -> dict[str, list[NightCell]]:
    """Return what runs, oldest first, made of the cells that match a scenario's name or a glob, by name."""
    cells: dict[str, list[NightCell]] = {}
    for head in heads:
        result = head.read().result
        environments = {environment.id: environment for environment in result.environments}
        for cell in result.cells:
            is_match = name in {cell.name, cell.scenario} or fnmatchcase(cell.name, name.replace("[", "[[]"))
            if is_match and cell.environment in environments:
                night = NightCell(run=result.run, environment=environments[cell.environment], cell=cell)
                cells.setdefault(cell.name, []).append(night)
    return cells
