"""What killed tools have left behind: processes, temporary folders, and attempts that did not end."""

from __future__ import annotations

import shutil
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING

from whichtorch.matrix.model import Record
from whichtorch.matrix.process.marks import owner_is_dead, sweep_left_behind
from whichtorch.matrix.process.temporary_folders import remove_left_behind
from whichtorch.matrix.records.attempt_files import folder_of
from whichtorch.matrix.records.store import OPEN, is_open, read_lines

if TYPE_CHECKING:
    from pathlib import Path

SCRATCH = ("tmp", "project")  # folders that an attempt has until it ends


def clear_left_behind(home: Path) -> None:
    """End and remove what killed tools with this state folder have left."""
    sweep_left_behind(home)
    remove_left_behind()
    for mark in home.glob(f"runs/*/{OPEN}"):
        with suppress(OSError):
            if owner_is_dead(mark.read_text(encoding="utf-8")) and not is_open(mark.parent):
                _remove_unfinished(mark.parent)
                mark.unlink()


def _remove_unfinished(run: Path) -> None:
    """Remove a run's attempts without a record: nobody has redacted their files. And its copies of a project."""
    recorded = {folder_of(record.attempt) for record in read_lines(run / "records.jsonl", Record)}
    for scratch in chain.from_iterable(run.glob(f"attempts/*/{name}") for name in SCRATCH):
        attempt = scratch.parent
        shutil.rmtree(scratch if f"runs/{run.name}/attempts/{attempt.name}" in recorded else attempt, True)
    for copy in run.glob("project-*"):
        shutil.rmtree(copy, ignore_errors=True)
