"""Merge runs that were made on several machines, or by several jobs, into one."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from whichtorch.base.atomic_files import is_regular
from whichtorch.base.grouping import grouped
from whichtorch.model import Attempt, Cell, Environment, Outcome, Record, Run, combine
from whichtorch.records.known_records import attempt_identity, identity
from whichtorch.records.store import RunFolder, RunStore, StoredRun, read_lines
from whichtorch.records.stored_runs import folder_of, with_folder

CellOfPart = tuple[StoredRun, Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What a merge produced."""

    parts: tuple[Run, ...]
    environments: int
    cells: tuple[Cell, ...]
    records: int
    twice: int  # records that more than one part held

    @property
    def conflicts(self) -> tuple[Cell, ...]:
        """The cells on whose outcome the parts disagree."""
        return tuple(cell for cell in self.cells if cell.conflict)


def merge(run_folders: Sequence[RunFolder], store: RunStore) -> Merged:
    """Write several runs as one, with the files of their attempts.

    A record that several parts hold is written once, and conflicting records are all written. A cell that several
    parts hold rests on the attempts of all of them; where the parts disagree, it says which part saw what.
    """
    parts = [run_folder.read() for run_folder in run_folders]
    runs = [part.result.run for part in parts]
    environments: dict[str, Environment] = {}  # the first part that has one describes it
    for part in parts:
        for scenario in part.result.scenarios:
            store.add_scenario(scenario)
        for environment in part.result.environments:
            environments.setdefault(environment.id, environment)
    for environment in environments.values():
        store.add_environment(environment)
    copies: dict[Path, str] = {}
    written: set[object] = set()
    total = 0
    for run_folder, part in zip(run_folders, parts, strict=True):
        for record in read_lines(run_folder.folder / "records.jsonl", Record):
            total += 1
            if identity(record) not in written:
                written.add(identity(record))
                attempt = _copied(record.attempt, part, store, copies)
                store.add_record(record.model_copy(update={"attempt": attempt}))
    cells = []
    for index, group in enumerate(_by_test(parts)):
        attempts = [_copied(attempt, part, store, copies) for part, cell in group for attempt in cell.attempts]
        cells.append(_merged(group, attempts))
        store.add_cell(cells[-1], [], index)
    missing = sum(max(0, part.result.run.planned - len(part.result.cells)) for part in parts)
    update = {
        "parts": tuple(dict.fromkeys(run.id for run in runs)),
        "planned": len(cells) + missing,
        "seconds": round(sum(run.seconds for run in runs), 3),
        "interrupted": any(run.interrupted for run in runs),
    }
    store.run = store.run.model_copy(update=update)
    return Merged(
        parts=tuple(runs),
        environments=len(environments),
        cells=tuple(cells),
        records=len(written),
        twice=total - len(written),
    )


def _by_test(parts: Iterable[StoredRun]) -> list[list[CellOfPart]]:
    """Return the cells of all parts, grouped by environment, script and variant."""
    pairs = ((part, cell) for part in parts for cell in part.result.cells)
    return list(grouped(pairs, lambda pair: (pair[1].environment, pair[1].name, pair[1].source_hash)).values())


def _merged(group: Sequence[CellOfPart], attempts: Sequence[Attempt]) -> Cell:
    """Return the cells of a group as one, with all their attempts."""
    first = group[0][1]
    if len(group) == 1:
        return first.model_copy(update={"attempts": tuple(attempts)})
    distinct = {attempt_identity(attempt): attempt for attempt in attempts}
    decisive = combine(list(distinct.values()))
    outcome = decisive.outcome if decisive else first.outcome
    agreeing = [cell for _, cell in group if cell.outcome is outcome]
    if outcome is Outcome.PASS:  # a vacuous cell has passing attempts
        agreeing = agreeing or [cell for _, cell in group if cell.outcome is Outcome.VACUOUS]
    # a machine that could not run it contradicts nobody
    by_run = {part.result.run.id: cell.outcome for part, cell in group if not cell.outcome.is_prevented}
    conflict = ", ".join(f"{word} in {run}" for run, word in by_run.items()) if len(set(by_run.values())) > 1 else ""
    update = {"attempts": tuple(distinct.values()), "conflict": conflict}
    return (agreeing or [first])[0].model_copy(update=update)


def _irregular(folder: str, names: list[str]) -> set[str]:
    """Return the names in a folder that are neither files nor folders themselves."""
    return {name for name in names if not is_regular(Path(folder, name))}


def _copied(attempt: Attempt, part: StoredRun, store: RunStore, copies: dict[Path, str]) -> Attempt:
    """Return an attempt with its files in the new run; the same attempt if its files are gone.

    Each folder is copied once. `copies` maps source folders to paths in the new run: the folders, because runs that
    began together on many machines may share an id.
    """
    old = folder_of(attempt)
    if not old:
        return attempt
    found = part.file(old)
    if found is None or not found.is_dir():
        return attempt
    source = found.resolve()
    if source not in copies:
        folder = store.attempt_folder()
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=_irregular)
        copies[source] = store.path_of(folder)
    return with_folder(attempt, copies[source])
