"""Stored runs: list them, find the one that a user means, remove old ones and what killed tools have left behind."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path, PurePosixPath

from whichtorch.base.atomic_files import read_json, remove_partial, write_atomic
from whichtorch.base.errors import UsageError
from whichtorch.model import Attempt, Record, Run
from whichtorch.process.marks import owner_is_dead, sweep_left_behind
from whichtorch.process.temporary_folders import remove_left_behind
from whichtorch.records.store import OPEN, RunFolder, is_open, read_lines

COMPARABLE = ("matrix", "merge")  # the kinds of run that `latest` and a date mean: a search runs only what it needs
LATEST = re.compile(r"latest(?:~(\d+))?")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_RUN_FILES = ("run.json", "*/run.json", "runs/*/run.json", ".whichtorch/runs/*/run.json", "*/runs/*/run.json")


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


_PATHS = ("stdout", "stderr", "stacks")  # of an attempt, each below its folder


def folder_of(attempt: Attempt) -> str:
    """Return the folder that an attempt's files lie in, relative to a state folder; "" where it has none."""
    return str(PurePosixPath(attempt.stdout).parent) if attempt.stdout else ""


def with_folder(attempt: Attempt, new: str) -> Attempt:
    """Return an attempt with its files in another folder, which is relative to a state folder, too."""
    old = folder_of(attempt)
    paths = {name: getattr(attempt, name) for name in _PATHS}
    moved = {name: path.replace(old, new, 1) for name, path in paths.items() if path.startswith(f"{old}/")}
    return attempt.model_copy(update=moved)


def without_files(attempt: Attempt) -> Attempt:
    """Return an attempt without its files."""
    return attempt.model_copy(update=dict.fromkeys(_PATHS, ""))


def clear_left_behind(home: Path) -> None:
    """End and remove what killed tools with this state folder have left."""
    sweep_left_behind(home)
    remove_left_behind()
    remove_partial(home)
    for mark in home.glob(f"runs/*/{OPEN}"):
        with suppress(OSError):
            if owner_is_dead(mark.read_text(encoding="utf-8")) and not is_open(mark.parent):
                _remove_unfinished(mark.parent)
                mark.unlink()


def _remove_unfinished(run: Path) -> None:
    """Remove a run's unrecorded attempts, whose files may not be redacted, and its copies of a project."""
    folders = (PurePosixPath(folder_of(record.attempt)) for record in read_lines(run / "records.jsonl", Record))
    recorded = {part for folder in folders for part in folder.parts[3:4]}  # runs/ID/attempts/ATTEMPT, and what is in it
    for attempt in run.glob("attempts/*"):
        for folder in (attempt / "tmp", attempt / "project") if attempt.name in recorded else (attempt,):
            shutil.rmtree(folder, ignore_errors=True)
    for copy in run.glob("project-*"):
        shutil.rmtree(copy, ignore_errors=True)
