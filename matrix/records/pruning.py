"""Remove old runs from a state folder, but for what the others rest on."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from matrix.records import stored_runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.model import Run
    from matrix.records.stored_runs import Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed."""

    runs: tuple[Run, ...]
    freed: int  # bytes
    kept_attempts: int  # of those runs, that others rest on


def removable(heads: Sequence[Head], keep: int) -> list[Head]:
    """Return the runs to remove so that the last `keep` remain, and those with a name; one that may still run stays."""
    return [head for head in heads[: max(0, len(heads) - keep)] if head.run.ended and not head.run.name]


def prune(home: Path, chosen: Sequence[Head], others: Sequence[Head]) -> Pruned:
    """Remove runs, with their records.

    What attempts of theirs left behind stays where cells of `others` rest on it, with its record: in a
    folder that is no run any more.
    """
    needed = {
        str(PurePosixPath(attempt.stdout).parent)
        for head in others
        for cell in stored_runs.read(head).result.cells
        for attempt in cell.attempts
        if attempt.stdout
    }
    freed = kept = 0
    for head in chosen:
        before = _size(head.folder)
        mine = {path for path in needed if path.startswith(f"runs/{head.run.id}/")}
        if not mine:
            shutil.rmtree(head.folder)
            freed += before
            continue
        kept += len(mine)
        records = [one for one in stored_runs.records_of(head) if str(PurePosixPath(one.attempt.stdout).parent) in mine]
        text = "".join(record.model_dump_json(by_alias=True) + "\n" for record in records)
        (head.folder / "run.json").unlink()  # first: from here on it is no run
        for name in ("cells", "environments", "scenarios"):
            (head.folder / f"{name}.jsonl").unlink(missing_ok=True)
        new = head.folder / "records.jsonl.new"
        new.write_text(text, encoding="utf-8")
        new.replace(head.folder / "records.jsonl")
        for folder in (head.folder / "attempts").iterdir():
            if str(folder.relative_to(home).as_posix()) not in mine:
                shutil.rmtree(folder)
        freed += before - _size(head.folder)
    return Pruned(runs=tuple(head.run for head in chosen), freed=freed, kept_attempts=kept)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
