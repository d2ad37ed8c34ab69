"""Cells from night to night: what each stored run made of them."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from pydantic import Field

from matrix.compare.comparison import stream
from matrix.model import Cell, Environment, Model, Outcome, Result, Run
from matrix.records import stored_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.records.stored_runs import RunFolder


SCHEMA = 1


class Night(Model):
    """A run, as far as it holds the cells that are asked about."""

    run: Run
    cells: int
    outcomes: dict[Outcome, int]


class NightCell(Model):
    """A cell as one run left it."""

    run: Run
    environment: Environment
    cell: Cell


class Histories(Model):
    """What `history --json` writes: what runs, oldest first, made of cells, by the cells' names."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    histories: dict[str, list[NightCell]]


def nights(result: Result, before: Sequence[RunFolder]) -> tuple[Night, ...]:
    """Return what earlier runs and this one, the last, made of this one's cells; runs without any are left out.

    A nightly stands for that of the other nights.
    """
    streams = {environment.id: stream(environment) for environment in result.environments}
    asked = {(streams[cell.environment], cell.name) for cell in result.cells}
    found = [_night(one, asked) for one in (*(stored_runs.read(head).result for head in before), result)]
    return tuple(night for night in found if night.cells)


def _night(result: Result, asked: set[tuple[str, str]]) -> Night:
    streams = {environment.id: stream(environment) for environment in result.environments}
    mine = [cell for cell in result.cells if (streams.get(cell.environment, ""), cell.name) in asked]
    return Night(run=result.run, cells=len(mine), outcomes=dict(Counter(cell.outcome for cell in mine)))


def history(name: str, heads: Sequence[RunFolder]) -> dict[str, list[NightCell]]:
    """Return what runs, oldest first, made of the cells that a scenario's name or a glob means, by their names."""
    found: dict[str, list[NightCell]] = {}
    for head in heads:
        result = stored_runs.read(head).result
        environments = {environment.id: environment for environment in result.environments}
        for cell in result.cells:
            is_asked = name in {cell.name, cell.scenario} or fnmatchcase(cell.name, name.replace("[", "[[]"))
            if is_asked and cell.environment in environments:
                seen = NightCell(run=result.run, environment=environments[cell.environment], cell=cell)
                found.setdefault(cell.name, []).append(seen)
    return found
