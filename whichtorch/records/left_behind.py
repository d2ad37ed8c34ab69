"""What killed tools have left behind: processes, temporary folders, and attempts that did not end."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path, PurePosixPath

from whichtorch.base.atomic_files import remove_partial
from whichtorch.model import Record
from whichtorch.process.marks import owner_is_dead, sweep_left_behind
from whichtorch.process.temporary_folders import remove_left_behind
from whichtorch.records.store import OPEN, is_open, read_lines
from whichtorch.records.stored_runs import folder_of


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
