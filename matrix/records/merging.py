"""Merge runs that were made on several machines, or by several jobs, into one."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from matrix.diagnosis.verdict import combine
from matrix.model import Attempt, Cell, Outcome, Run, digest
from matrix.records import stored_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from matrix.model import Environment
    from matrix.records.store import RunStore
    from matrix.records.stored_runs import RunFolder, StoredRun

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


def merge(runs: Sequence[RunFolder], store: RunStore) -> Merged:
    """Write several runs as one, with the files of their attempts.

    A record that several parts hold is written once, and conflicting records are all written. A cell that several
    parts hold rests on the attempts of all of them; where the parts disagree, it says which part saw what.
    """
    parts = [stored_runs.read(run) for run in runs]
    files = _AttemptFiles(store)
    environments: dict[str, Environment] = {}  # the first part that has one describes it
    for part in parts:
        for scenario in part.result.scenarios:
            store.add_scenario(scenario)
        for environment in part.result.environments:
            environments.setdefault(environment.id, environment)
    for environment in environments.values():
        store.add_environment(environment)
    written: set[str] = set()
    total = 0
    for run, part in zip(runs, parts, strict=True):
        for record in stored_runs.records_of(run):
            total += 1
            identity = record.key + _identity(record.attempt)
            if identity not in written:
                written.add(identity)
                store.add_record(record.model_copy(update={"attempt": files.copied(record.attempt, part)}))
    cells = []
    for index, group in enumerate(_by_test(parts)):
        cells.append(_merged([(part, _with_files(cell, part, files)) for part, cell in group]))
        store.add_cell(cells[-1], [], index)
    store.run = _merged_run(store.run, parts, len(cells))
    return Merged(
        parts=tuple(part.result.run for part in parts),
        environments=len(environments),
        cells=tuple(cells),
        records=len(written),
        twice=total - len(written),
    )


def _by_test(parts: Iterable[StoredRun]) -> list[list[CellOfPart]]:
    """Return the cells of all parts, grouped by environment, script and variant."""
    groups: dict[tuple[str, str, str], list[CellOfPart]] = {}
    for part in parts:
        for cell in part.result.cells:
            groups.setdefault((cell.environment, cell.name, cell.source_hash), []).append((part, cell))
    return list(groups.values())


def _merged(group: Sequence[CellOfPart]) -> Cell:
    """Return a group's cells as one cell."""
    first = group[0][1]
    if len(group) == 1:
        return first
    attempts = {_identity(attempt): attempt for _, cell in group for attempt in cell.attempts}
    decisive = combine(list(attempts.values()))
    outcome = decisive.outcome if decisive else first.outcome
    agreeing = [cell for _, cell in group if cell.outcome is outcome]
    if outcome is Outcome.PASS:  # a vacuous cell has passing attempts
        agreeing = agreeing or [cell for _, cell in group if cell.outcome is Outcome.VACUOUS]
    # a machine that could not run it contradicts nobody
    by_run = {part.result.run.id: cell.outcome for part, cell in group if not cell.outcome.is_prevented}
    conflict = ", ".join(f"{word} in {run}" for run, word in by_run.items()) if len(set(by_run.values())) > 1 else ""
    chosen = (agreeing or [first])[0]
    return chosen.model_copy(update={"attempts": tuple(attempts.values()), "conflict": conflict})


def _identity(attempt: Attempt) -> str:
    """Return what makes two attempts the same: everything but where their files lie."""
    return digest(attempt.model_dump(mode="json", exclude={"stdout", "stderr", "stacks"}), 20)


def _with_files(cell: Cell, part: StoredRun, files: _AttemptFiles) -> Cell:
    return cell.model_copy(update={"attempts": tuple(files.copied(attempt, part) for attempt in cell.attempts)})


def _merged_run(run: Run, parts: Sequence[StoredRun], cells: int) -> Run:
    missing = sum(max(0, part.result.run.planned - len(part.result.cells)) for part in parts)
    return run.model_copy(
        update={
            "parts": tuple(dict.fromkeys(part.result.run.id for part in parts)),
            "planned": cells + missing,
            "seconds": round(sum(part.result.run.seconds for part in parts), 3),
            "interrupted": any(part.result.run.interrupted for part in parts),
        }
    )


class _AttemptFiles:
    """Copies the files of attempts into a new run, each attempt's folder once."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        # Keyed by folder, not by the part's path: runs that began together on many machines may share an id.
        self._copies: dict[Path, str] = {}  # source folder -> path in the new run

    def copied(self, attempt: Attempt, part: StoredRun) -> Attempt:
        """Return an attempt whose files lie in the new run; the same attempt where its files are gone."""
        if not attempt.stdout:
            return attempt
        old = str(PurePosixPath(attempt.stdout).parent)
        source = part.file(old).resolve()
        if source not in self._copies:
            if not source.is_dir():
                return attempt
            folder = self._store.attempt_folder()
            shutil.copytree(source, folder, dirs_exist_ok=True)
            self._copies[source] = f"runs/{self._store.run.id}/attempts/{folder.name}"
        new = self._copies[source]
        paths = {name: getattr(attempt, name) for name in ("stdout", "stderr", "stacks")}
        return attempt.model_copy(
            update={name: path.replace(old, new, 1) for name, path in paths.items() if path.startswith(f"{old}/")}
        )
