"""Stored runs: which there are, what each came to, and by which words a user means one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from matrix.errors import UsageError
from matrix.model import Environment, Record, Result, Run, Scenario
from matrix.records.store import CellLine, items_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.model import Cell

COMPARABLE = ("matrix", "merge")  # kinds of runs that `latest` and a date mean: a search runs what it needs, no more
_LATEST = re.compile(r"latest(?:~(\d+))?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_PLACES = ("run.json", "*/run.json", "runs/*/run.json", ".whichtorch/runs/*/run.json", "*/runs/*/run.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A run's folder and what it was called with, without its cells."""

    folder: Path
    run: Run


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run as it was stored, here or on another machine."""

    folder: Path
    result: Result

    def file(self, path: str) -> Path:
        """Return where an attempt's file lies: in the run's folder, wherever that is now, or in a run beside it."""
        own = f"runs/{self.result.run.id}/"
        return self.folder / path.removeprefix(own) if path.startswith(own) else self.folder.parent.parent / path


def heads(home: Path) -> list[Head]:
    """Return the runs of a state folder, oldest first; those whose run.json cannot be read are left out."""
    return sorted(_heads((home / "runs").glob("*/run.json")), key=lambda head: (head.run.started, head.run.id))


def _heads(files: Iterator[Path]) -> Iterator[Head]:
    for file in files:
        try:
            yield Head(folder=file.parent, run=Run.model_validate_json(file.read_bytes()))
        except (OSError, ValidationError):
            continue


def runs_below(folder: Path) -> list[Head]:
    """Return the runs in a folder from anywhere: itself one, a state folder, or the artifacts of several jobs.

    Oldest first. Raises UsageError where there is none.
    """
    files = dict.fromkeys(file.resolve() for pattern in _PLACES for file in folder.glob(pattern))
    found = list(_heads(iter(files)))
    if not found:
        raise UsageError(f"there is no run in {folder}", hint="name a folder with a run.json, or one above it")
    return sorted(found, key=lambda head: (head.run.started, head.run.id))


def find(text: str, home: Path) -> Head:
    """Return the run that a user means: an id or its beginning, a name, latest, latest~1, a day, or a folder.

    Of a folder or a day with several it is the latest. Raises UsageError with what there is.
    """
    known = heads(home)
    exact = [head for head in known if text in {head.run.id, head.run.name}]
    comparable = [head for head in known if head.run.kind in COMPARABLE]
    if exact:
        return exact[-1]
    if latest := _LATEST.fullmatch(text):
        back = int(latest[1] or 0)
        if back >= len(comparable):
            raise UsageError(f"there is no run {text}: of a matrix {len(comparable)} are stored", hint=_listing(known))
        return comparable[-1 - back]
    if _DAY.fullmatch(text):
        comparable = [head for head in comparable if head.run.started.startswith(text)]
        if not comparable:
            raise UsageError(f"no run was started on {text} (UTC)", hint=_listing(known))
        return comparable[-1]
    if Path(text).is_dir():
        below = runs_below(Path(text))
        return ([head for head in below if head.run.kind in COMPARABLE] or below)[-1]
    begun = [head for head in known if head.run.id.startswith(text)]
    if len(begun) > 1:
        ids = ", ".join(head.run.id for head in begun)
        raise UsageError(f"{len(begun)} runs begin with {text}: {ids}", hint="give more of the id")
    if not begun:
        raise UsageError(f"no run is called {text}, and no folder", hint=_listing(known))
    return begun[0]


def _listing(known: Sequence[Head]) -> str:
    if not known:
        return "run `whichtorch matrix` first, or name the folder of a run from elsewhere"
    return f"the latest are {', '.join(head.run.id for head in known[-3:])}; `whichtorch runs` lists all"


def read(head: Head) -> StoredRun:
    """Return the whole of a run: environments and cells in the order of the plan.

    A cell that was run in several steps is there once, as the last of them left it.
    """
    scenarios = {one.source_hash: one for one in items_of(head.folder / "scenarios.jsonl", Scenario)}
    environments = {one.id: one for one in items_of(head.folder / "environments.jsonl", Environment)}
    cells: dict[tuple[str, str, str], tuple[int, Cell]] = {}  # of merged runs, two versions of a script are two
    for line in items_of(head.folder / "cells.jsonl", CellLine):
        cells[line.cell.environment, line.cell.name, line.cell.source_hash] = line.place, line.cell
    ordered = [cell for _, cell in sorted(cells.values(), key=lambda pair: pair[0])]
    for cell in ordered:
        environments.setdefault(cell.environment, _unknown(cell.environment))
    first = {cell.environment: place for place, cell in reversed(list(enumerate(ordered)))}
    result = Result(
        run=head.run,
        scenarios=tuple(scenarios.values()),
        environments=tuple(sorted(environments.values(), key=lambda one: first.get(one.id, len(ordered)))),
        cells=tuple(ordered),
    )
    return StoredRun(folder=head.folder, result=result)


def _unknown(id_: str) -> Environment:
    """Return what stands for an environment that a kill kept from being written: its cells are told all the same."""
    return Environment(id=id_, label=id_, torch="unknown", python="unknown", build="unknown", config="unknown")


def records_of(head: Head) -> list[Record]:
    """Return the records that a run made."""
    return list(items_of(head.folder / "records.jsonl", Record))
