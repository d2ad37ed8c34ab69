"""Cells from night to night: what each stored run made of them."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import TYPE_CHECKING, Self

from pydantic import Field

from whichtorch.matrix.compare.comings_and_goings import FlakeRate, HostStreak, flake_rates, host_streaks
from whichtorch.matrix.compare.comparison import stream
from whichtorch.matrix.compare.number_nights import NumberNights, numbers_of
from whichtorch.matrix.model import Cell, Environment, Model, Outcome, Result, Run, split_test
from whichtorch.matrix.records.line_index import LineIndex
from whichtorch.matrix.records.store import CELLS, ENVIRONMENTS, unknown_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from whichtorch.matrix.records.store import RunFolder

_OF_NAME = "name = :name and run = :run"


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
    numbers: tuple[NumberNights, ...] = ()  # that were measured
    flakes: tuple[FlakeRate, ...] = ()  # of tests that come and go
    hosts: tuple[HostStreak, ...] = ()  # on which a test fails that passes on others

    @classmethod
    def of(cls, histories: dict[str, list[NightCell]]) -> Self:
        """Return histories with what they say of numbers, and of what comes and goes."""
        every = [night for own in histories.values() for night in own]
        numbers, flakes, hosts = numbers_of(every), flake_rates(every), host_streaks(every)
        return cls(histories=histories, numbers=numbers, flakes=tuple(flakes), hosts=tuple(hosts))


def nights(result: Result, before: Sequence[RunFolder]) -> tuple[Night, ...]:
    """Return what earlier runs of a state folder, then this one, made of this one's cells; others are left out.

    A nightly is compared with the nightlies of the other runs.
    """
    streams = {environment.id: stream(environment) for environment in result.environments}
    names = {(streams[cell.environment], cell.name) for cell in result.cells}
    found = [(result.run, Counter(cell.outcome for cell in result.cells))]
    if before:
        home = before[0].folder.parents[1]
        cells, environments = LineIndex(CELLS, home), LineIndex(ENVIRONMENTS, home)
        in_run = "run = :run order by start"
        for head in reversed(before):
            run = head.folder.name
            latest = {
                tuple(cell): outcome
                for *cell, outcome in cells.rows("environment, name, source, outcome", in_run, run=run)
            }
            described = environments.latest("environment", "run = :run", run=run)
            streams = {id_: stream(environment) for id_, environment in described.items()}
            shared = [outcome for (id_, name, _), outcome in latest.items() if (streams.get(id_, id_), name) in names]
            found.append((head.run, Counter(Outcome[outcome] for outcome in shared)))
    return tuple(
        Night(run=run, cells=outcomes.total(), outcomes=dict(outcomes)) for run, outcomes in reversed(found) if outcomes
    )


def history(name: str, heads: Sequence[RunFolder]) -> dict[str, list[NightCell]]:
    """Return what runs of a state folder, oldest first, made of a test or of those that match a glob, by name."""
    if not heads:
        return {}
    home = heads[0].folder.parents[1]
    cells, environments = LineIndex(CELLS, home), LineIndex(ENVIRONMENTS, home)
    pattern = name.replace("[", "[[]")

    def is_match(known: str) -> bool:
        return known == name or fnmatchcase(known, pattern)

    names = [
        known
        for (known,) in cells.rows("distinct name")
        if is_match(known) or known.startswith((f"{name}[", f"{name} -- "))
    ]
    found: dict[str, list[NightCell]] = {}
    for head in heads:
        run = head.folder.name
        in_run = [cells.latest("environment || ' ' || source", _OF_NAME, name=known, run=run) for known in names]
        lines = [line for latest in in_run for line in latest.values()]
        described = environments.latest("environment", "run = :run", run=run) if lines else {}
        for line in sorted(lines, key=attrgetter("place")):
            cell = line.cell
            if name == split_test(cell.scenario)[0] or is_match(cell.name):
                environment = described.get(cell.environment) or unknown_environment(cell.environment)
                found.setdefault(cell.name, []).append(NightCell(run=head.run, environment=environment, cell=cell))
    return found
