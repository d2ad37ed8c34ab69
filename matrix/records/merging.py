"""Runs made on several machines, or by several jobs, become one."""

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
    from matrix.records.stored_runs import Head, StoredRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """What became of the parts."""

    parts: tuple[Run, ...]
    environments: int
    cells: tuple[Cell, ...]
    records: int
    twice: int  # records that more than one part held

    @property
    def conflicts(self) -> tuple[Cell, ...]:
        """The cells that came out otherwise in another part."""
        return tuple(cell for cell in self.cells if cell.conflict)


def merge(heads: Sequence[Head], store: RunStore) -> Merged:
    """Write runs as one: the same record once, conflicting ones both, with the files they name.

    A cell that several parts have rests on the attempts of all. Where these disagree it is what any cell with
    such attempts is, and says which part saw what.
    """
    parts = [stored_runs.read(head) for head in heads]
    files = _Files(store)
    environments: dict[str, Environment] = {}
    for part in parts:
        for scenario in part.result.scenarios:
            store.add_scenario(scenario)
        environments |= {one.id: one for one in part.result.environments if one.id not in environments}
    for environment in environments.values():
        store.add_environment(environment)
    seen: set[str] = set()
    made = 0
    for head, part in zip(heads, parts, strict=True):
        for record in stored_runs.records_of(head):
            made += 1
            identity = record.key + _identity(record.attempt)
            if identity not in seen:
                seen.add(identity)
                store.add_record(record.model_copy(update={"attempt": files.taken(record.attempt, part)}))
    cells = []
    for place, group in enumerate(_by_test(parts)):
        cells.append(_merged([(part, _with_files(cell, part, files)) for part, cell in group]))
        store.add_cell(cells[-1], [], place)
    store.run = _merged_run(store.run, parts, len(cells))
    return Merged(
        parts=tuple(part.result.run for part in parts),
        environments=len(environments),
        cells=tuple(cells),
        records=len(seen),
        twice=made - len(seen),
    )


def _by_test(parts: Iterable[StoredRun]) -> list[list[tuple[StoredRun, Cell]]]:
    """Return the cells of all parts, those of one environment, script and variant together."""
    groups: dict[tuple[str, str, str], list[tuple[StoredRun, Cell]]] = {}
    for part in parts:
        for cell in part.result.cells:
            groups.setdefault((cell.environment, cell.name, cell.source_hash), []).append((part, cell))
    return list(groups.values())


def _merged(group: Sequence[tuple[StoredRun, Cell]]) -> Cell:
    """Return one cell for several."""
    (_, first), *others = group
    if not others:
        return first
    attempts = {_identity(attempt): attempt for _, cell in group for attempt in cell.attempts}
    speaker = combine(list(attempts.values()))
    said = speaker.outcome if speaker else first.outcome
    # a pass may have been called vacuous, which its attempts do not know
    alike = [cell for _, cell in group if cell.outcome is said] or [
        cell for _, cell in group if said is Outcome.PASS and cell.outcome is Outcome.VACUOUS
    ]
    # that a machine could not run it contradicts nobody
    saw = {part.result.run.id: cell.outcome for part, cell in group if not cell.outcome.is_prevented}
    conflict = ", ".join(f"{outcome} in {run}" for run, outcome in saw.items()) if len(set(saw.values())) > 1 else ""
    chosen = (alike or [first])[0]
    return chosen.model_copy(update={"attempts": tuple(attempts.values()), "conflict": conflict})


def _identity(attempt: Attempt) -> str:
    """Return what makes two attempts the same one: all but where its files lie."""
    return digest(attempt.model_dump(mode="json", exclude={"stdout", "stderr", "stacks"}), 20)


def _with_files(cell: Cell, part: StoredRun, files: _Files) -> Cell:
    return cell.model_copy(update={"attempts": tuple(files.taken(attempt, part) for attempt in cell.attempts)})


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


class _Files:
    """Copies what attempts left behind into a new run, each attempt's folder once."""

    def __init__(self, store: RunStore) -> None:
        self._store = store
        # not by what parts call them: ids of runs that began together on many machines may be the same
        self._taken: dict[Path, str] = {}  # folders of parts, as the new run calls them

    def taken(self, attempt: Attempt, part: StoredRun) -> Attempt:
        """Return an attempt whose files lie in the new run; one whose files are gone as it is."""
        if not attempt.stdout:
            return attempt
        old = str(PurePosixPath(attempt.stdout).parent)
        source = part.file(old).resolve()
        if source not in self._taken:
            if not source.is_dir():
                return attempt
            folder = self._store.attempt_folder()
            shutil.copytree(source, folder, dirs_exist_ok=True)
            self._taken[source] = f"runs/{self._store.run.id}/attempts/{folder.name}"
        new = self._taken[source]
        paths = {name: getattr(attempt, name) for name in ("stdout", "stderr", "stacks")}
        return attempt.model_copy(
            update={name: path.replace(old, new, 1) for name, path in paths.items() if path.startswith(f"{old}/")}
        )
