"""Stored runs: list them, find the one that a user means, remove old ones, and merge several into one.

Those that are merged were made on several machines, or by several jobs.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path

from whichtorch.base.atomic_files import is_regular, read_json, write_atomic
from whichtorch.base.errors import UsageError
from whichtorch.base.grouping import grouped
from whichtorch.model import Attempt, Cell, Environment, Outcome, Record, Run, combine
from whichtorch.records.line_index import attempt_identity, identity
from whichtorch.records.store import RunFolder, RunStore, StoredRun, folder_of, read_lines, with_folder

COMPARABLE = ("matrix", "merge")  # the kinds of run that `latest` and a date mean: a search runs only what it needs
LATEST = re.compile(r"latest(?:~(\d+))?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_RUN_FILES = ("run.json", "*/run.json", "runs/*/run.json", ".whichtorch/runs/*/run.json", "*/runs/*/run.json")

CellOfPart = tuple[StoredRun, Cell]


def all_runs(home: Path) -> list[RunFolder]:
    """Return the runs of a state folder, oldest first, without those whose run.json cannot be read."""
    return _run_folders((home / "runs").glob("*/run.json"))


def damage(home: Path, chosen: Sequence[RunFolder], lines: int | None = None) -> Iterator[str]:
    """Yield what is left out because it cannot be read: a run without its run.json, and lines of the chosen runs.

    `lines` is how many of each file are looked at. The last line of a run that did not end may be torn by a kill.
    """
    for file in sorted((home / "runs").glob("*/run.json")):
        if read_json(file, Run) is None:
            remedy = "restore the file, or remove the folder"
            yield f"{file.parent.name} is left out: its run.json cannot be read; {remedy}: {file.parent}"
    for folder, name in product(chosen, ("records", "cells", "environments", "scenarios")):
        file = folder.folder / f"{name}.jsonl"
        with suppress(FileNotFoundError), file.open("rb") as content:
            if torn := [number for number, line in enumerate(islice(content, lines), 1) if not _is_whole(line, folder)]:
                count = f"line {torn[0]}" + (f" and {len(torn) - 1} more" if torn[1:] else "")
                remedy = "the same command runs again what is missing with it"
                yield f"{folder.run.id}: {count} of {file.name} cannot be read and is left out; {remedy}"


def _is_whole(line: bytes, folder: RunFolder) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):  # too deep to be read
        return not folder.run.ended and not line.endswith(b"\n")


def _run_folders(files: Iterable[Path]) -> list[RunFolder]:
    runs = (RunFolder(folder=file.parent, run=run) for file in files if (run := read_json(file, Run)))
    return sorted(runs, key=lambda run_folder: (run_folder.run.started, run_folder.run.id))


def runs_below(folder: Path) -> list[RunFolder]:
    """Return the runs in any folder, oldest first: a run's own, a state folder, or the artifacts of several jobs.

    Raises UsageError where there is none.
    """
    runs = _run_folders({file.resolve() for pattern in _RUN_FILES for file in folder.glob(pattern)})
    if not runs:
        raise UsageError(f"there is no run in {folder}", hint="name a folder with a run.json, or one above it")
    return runs


def find(text: str, home: Path) -> RunFolder:
    """Return the run that a user means: by id or its beginning, name, latest, latest~1, day, or folder.

    Where a folder or a day has several runs, the latest is meant. Raises UsageError that lists the latest runs.
    """
    known = all_runs(home)
    comparable = [run_folder for run_folder in known if run_folder.run.kind in COMPARABLE]
    if exact := [run_folder for run_folder in known if text in {run_folder.run.id, run_folder.run.name}]:
        return exact[-1]
    if latest := LATEST.fullmatch(text):
        back = int(latest[1] or 0)
        if back >= len(comparable):
            raise UsageError(f"there is no run {text}: of a matrix {len(comparable)} are stored", hint=_listing(known))
        return comparable[-1 - back]
    if _DAY.fullmatch(text):
        comparable = [run_folder for run_folder in comparable if run_folder.run.started.startswith(text)]
        if not comparable:
            raise UsageError(f"no run was started on {text} (UTC)", hint=_listing(known))
        return comparable[-1]
    if Path(text).is_dir():
        below = runs_below(Path(text))
        return ([run_folder for run_folder in below if run_folder.run.kind in COMPARABLE] or below)[-1]
    matching = [run_folder for run_folder in known if run_folder.run.id.startswith(text)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        ids = ", ".join(run_folder.run.id for run_folder in matching)
        raise UsageError(f"{len(matching)} runs begin with {text}: {ids}", hint="give more of the id")
    raise UsageError(f"no run is called {text}, and no folder", hint=_listing(known))


def _listing(known: Sequence[RunFolder]) -> str:
    if not known:
        return "run `whichtorch matrix` first, or name the folder of a run from another machine"
    return f"the latest are {', '.join(run_folder.run.id for run_folder in known[-3:])}; `whichtorch runs` lists all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed."""

    runs: tuple[Run, ...]
    freed: int  # bytes
    kept_attempts: int  # attempts of those runs that other runs rest on


def removable(runs: Sequence[RunFolder], keep: int) -> list[RunFolder]:
    """Return the runs to remove so that the last `keep` stay. Runs with a name, or not ended, also stay."""
    old = runs[: max(0, len(runs) - keep)]
    return [run_folder for run_folder in old if run_folder.run.ended and not run_folder.run.name]


def prune(home: Path, chosen: Sequence[RunFolder], others: Sequence[RunFolder]) -> Pruned:
    """Remove runs and their records, except the attempts that cells of `others` rest on.

    Such attempts stay in the run's folder with their records; the folder then no longer counts as a run.
    """
    needed = {
        folder_of(attempt)
        for run_folder in others
        for cell in run_folder.read().result.cells
        for attempt in cell.attempts
        if attempt.stdout
    }
    freed = kept = 0
    for run_folder in chosen:
        before = _size(run_folder.folder)
        own = {path for path in needed if path.startswith(f"runs/{run_folder.run.id}/")}
        if own:
            _strip(run_folder.folder, home, own)
        else:
            shutil.rmtree(run_folder.folder)
        freed += before - _size(run_folder.folder)
        kept += len(own)
    return Pruned(runs=tuple(run_folder.run for run_folder in chosen), freed=freed, kept_attempts=kept)


def _strip(folder: Path, home: Path, attempts: set[str]) -> None:
    """Remove everything of a run but some attempts, given by their folders, and their records."""
    known = read_lines(folder / "records.jsonl", Record)
    records = [record for record in known if folder_of(record.attempt) in attempts]
    (folder / "run.json").unlink()  # first, so that it is no run from here on
    for name in ("cells", "environments", "scenarios"):
        (folder / f"{name}.jsonl").unlink(missing_ok=True)
    write_atomic(folder / "records.jsonl", "".join(record.model_dump_json(by_alias=True) + "\n" for record in records))
    for attempt in (folder / "attempts").iterdir():
        if attempt.relative_to(home).as_posix() not in attempts:
            shutil.rmtree(attempt)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


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
