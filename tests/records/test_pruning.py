"""Old runs go; what the others rest on stays."""

from pathlib import Path

from tests.records.test_stored_runs import with_output
from tests.results import FAIL, PASS, cell, environment, result, stored
from whichtorch.records import stored_runs
from whichtorch.records.line_index import Records
from whichtorch.records.stored_runs import prune, removable

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
    run_folders = stored_runs.all_runs(tmp_path)
    assert [run_folder.run.id for run_folder in removable(run_folders, keep=1)] == ["run1", "run4"]
    assert removable(run_folders, keep=9) == []


def test_a_run_that_nobody_rests_on_is_gone(tmp_path: Path) -> None:
    """Its folder is removed, and what it took is told."""
    run_folder = with_output(tmp_path, cell(OLD, FAIL), "x" * 10_000)
    pruned = prune(tmp_path, [run_folder], [])
    assert not run_folder.folder.exists()
    assert pruned.freed > 10_000
    assert pruned.kept_attempts == 0


def test_what_a_later_run_rests_on_stays(tmp_path: Path) -> None:
    """A cell that was known from the removed run can still show what was written, and is not run again."""
    run_folder = with_output(tmp_path, cell(OLD, FAIL), "as it was")
    (rested_on,) = run_folder.read().result.cells
    other = run_folder.folder / "attempts" / "00002"
    other.mkdir()
    later = stored(tmp_path, result([OLD], [rested_on]), day="2026-11-02")
    pruned = prune(tmp_path, [run_folder], [later])
    assert pruned.kept_attempts == 1
    assert [run_folder.run.id for run_folder in stored_runs.all_runs(tmp_path)] == [later.run.id]
    read = later.read()
    file = read.file(read.result.cells[0].attempts[0].stderr)
    assert file is not None
    assert file.read_text() == "as it was"
    assert len(Records(tmp_path).of("key")) == 1
    assert not other.exists()
