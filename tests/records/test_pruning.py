"""Old runs go; what the others rest on stays."""

from __future__ import annotations

from pathlib import Path

from matrix.records import stored_runs
from matrix.records.pruning import prune, removable
from matrix.records.store import read_records
from tests.records.test_merging import with_output
from tests.results import FAIL, PASS, cell, environment, result, stored

OLD = environment("2.11.0")


def test_the_latest_and_the_named_stay(tmp_path: Path) -> None:
    """A run that somebody named is a reference; one that has not ended may still run."""
    for day in range(1, 6):
        names = {2: "before-upgrade"}
        stored(
            tmp_path,
            result([OLD], [cell(OLD, PASS)]),
            day=f"2026-11-0{day}",
            ended=day != 3,
            id=f"run{day}",
            name=names.get(day, ""),
        )
    heads = stored_runs.heads(tmp_path)
    assert [head.run.id for head in removable(heads, keep=1)] == ["run1", "run4"]
    assert removable(heads, keep=9) == []


def test_a_run_that_nobody_rests_on_is_gone(tmp_path: Path) -> None:
    """Its folder is removed, and what it took is told."""
    head = with_output(tmp_path, cell(OLD, FAIL), "x" * 10_000)
    pruned = prune(tmp_path, [head], [])
    assert not head.folder.exists()
    assert pruned.freed > 10_000
    assert pruned.kept_attempts == 0


def test_what_a_later_run_rests_on_stays(tmp_path: Path) -> None:
    """A cell that was known from the removed run can still show what was written, and is not run again."""
    head = with_output(tmp_path, cell(OLD, FAIL), "as it was")
    (rested_on,) = stored_runs.read(head).result.cells
    other = head.folder / "attempts" / "00002"
    other.mkdir()
    later = stored(tmp_path, result([OLD], [rested_on]), day="2026-11-02")
    pruned = prune(tmp_path, [head], [later])
    assert pruned.kept_attempts == 1
    assert [one.run.id for one in stored_runs.heads(tmp_path)] == [later.run.id]
    read = stored_runs.read(later)
    assert read.file(read.result.cells[0].attempts[0].stderr).read_text() == "as it was"
    assert len(read_records(tmp_path).of("key")) == 1
    assert not other.exists()
