"""Runs of several machines become one."""

import os
from pathlib import Path

from tests.results import FAIL, HANG, PASS, attempt, cell, environment, result, stored
from whichtorch.model import Cell, Limits, Outcome, Record
from whichtorch.records.merging import Merged, merge
from whichtorch.records.store import RunFolder, StoredRun, new_run, read_records

OLD, NEW = environment("2.11.0"), environment("2.12.1")
LIMITS = Limits(timeout=60, memory_mb=1000)


def merged(home: Path, *run_folders: RunFolder) -> tuple[Merged, StoredRun]:
    with new_run(home, ("merge",)) as store:
        summary = merge(run_folders, store)
        store.finish(store.run)
    return summary, RunFolder(folder=store.folder, run=store.run).read()


def with_output(home: Path, where_cell: Cell, text: str, *, started: str = "2026-11-01T02:00:00") -> RunFolder:
    """Store a run of one cell, whose attempt left a file behind and a record."""
    run_folder = stored(home, result([OLD], []))
    path = f"runs/{run_folder.run.id}/attempts/00001"
    (home / path).mkdir()
    (home / path / "stderr.txt").write_text(text)
    left = attempt(where_cell.outcome, stdout=f"{path}/stdout.txt", stderr=f"{path}/stderr.txt", started=started)
    made = where_cell.model_copy(update={"attempts": (left,)})
    (run_folder.folder / "cells.jsonl").write_text(
        f'{{"place": 0, "records": ["key"], "cell": {made.model_dump_json()}}}\n'
    )
    record = Record(
        key="key",
        environment=OLD.id,
        scenario=made.scenario,
        source_hash=made.source_hash,
        variant={},
        limits=LIMITS,
        attempt=left,
    )
    (run_folder.folder / "records.jsonl").write_text(record.model_dump_json(by_alias=True) + "\n")
    return run_folder


def test_environments_of_several_jobs_stand_side_by_side(tmp_path: Path) -> None:
    """A job per environment makes the matrix that one machine would have made."""
    first = stored(tmp_path / "one", result([OLD], [cell(OLD, HANG)]))
    second = stored(tmp_path / "other", result([NEW], [cell(NEW, PASS)]))
    summary, run = merged(tmp_path / "here", first, second)
    assert run.result.environments == (OLD, NEW)
    assert [merged_cell.outcome for merged_cell in run.result.cells] == [HANG, PASS]
    assert run.result.run.parts == (first.run.id, second.run.id)
    assert run.result.is_complete
    assert not summary.conflicts


def test_the_same_run_twice_is_kept_once(tmp_path: Path) -> None:
    """An artifact that was downloaded twice changes nothing."""
    run_folder = with_output(tmp_path / "one", cell(OLD, FAIL), "as it was")
    summary, run = merged(tmp_path / "here", run_folder, run_folder)
    assert (summary.records, summary.twice) == (1, 1)
    (made,) = run.result.cells
    assert len(made.attempts) == 1
    assert len(list((run.folder / "attempts").iterdir())) == 1


def test_conflicting_cells_are_both_kept_and_told(tmp_path: Path) -> None:
    """It hangs on one machine and passes on the other: a pass does not take the hang back, and both are shown."""
    first = with_output(tmp_path / "one", cell(OLD, PASS), "well")
    second = with_output(tmp_path / "other", cell(OLD, HANG), "stuck", started="2026-11-01T03:00:00")
    summary, run = merged(tmp_path / "here", first, second)
    (made,) = run.result.cells
    assert (made.outcome, made.flaky) == (HANG, "1 of 2")
    assert made.conflict == f"pass in {first.run.id}, hang in {second.run.id}"
    assert summary.conflicts == (made,)
    assert [read(run, left.stderr) for left in made.attempts] == ["well", "stuck"]
    records = read_records(tmp_path / "here").of("key")
    assert [record.attempt.outcome for record in records] == [PASS, HANG]


def read(run: StoredRun, path: str) -> str:
    file = run.file(path)
    assert file is not None
    return file.read_text()


def test_nothing_of_this_machine_is_taken_along(tmp_path: Path) -> None:
    """Neither what a link in a run from elsewhere leads to, nor a folder outside that a path names."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "stderr.txt").write_text("of this machine")
    linked = with_output(tmp_path / "one", cell(OLD, FAIL), "as it was")
    (linked.folder / "attempts" / "00001" / "link.txt").symlink_to(tmp_path / "secret" / "stderr.txt")
    os.mkfifo(linked.folder / "attempts" / "00001" / "pipe")
    outside = with_output(tmp_path / "other", cell(NEW, FAIL), "as it was")
    for file in outside.folder.glob("*.jsonl"):
        file.write_text(file.read_text().replace(f"runs/{outside.run.id}/attempts/00001", "../secret"))
    _, run = merged(tmp_path / "here", linked, outside)
    taken = [path for path in run.folder.rglob("*") if path.is_file()]
    assert [path.name for path in taken if path.parent.parent.name == "attempts"] == ["stderr.txt"]
    assert all("of this machine" not in path.read_text() for path in taken)


def test_files_are_taken_along(tmp_path: Path) -> None:
    """What attempts wrote lies in the merged run's folder: the parts may go."""
    run_folder = with_output(tmp_path / "one", cell(OLD, FAIL), "as it was")
    _, run = merged(tmp_path / "here", run_folder)
    (made,) = run.result.cells
    path = run.file(made.attempts[0].stderr)
    assert path is not None
    assert path.is_relative_to(run.folder)
    assert path.read_text() == "as it was"


def test_a_machine_that_could_not_run_it_contradicts_nobody(tmp_path: Path) -> None:
    """An error of one machine's harness gives way to what another one saw."""
    first = stored(tmp_path / "one", result([OLD], [cell(OLD, Outcome.ERROR)]))
    second = stored(tmp_path / "other", result([OLD], [cell(OLD, PASS)]))
    summary, run = merged(tmp_path / "here", first, second)
    assert [merged_cell.outcome for merged_cell in run.result.cells] == [PASS]
    assert not summary.conflicts


def test_two_versions_of_a_script_are_two_tests(tmp_path: Path) -> None:
    """Jobs that checked out different commits did not run the same thing."""
    first = stored(tmp_path / "one", result([OLD], [cell(OLD, PASS, source_hash="one")]))
    second = stored(tmp_path / "other", result([OLD], [cell(OLD, HANG, source_hash="two")]))
    summary, run = merged(tmp_path / "here", first, second)
    assert not summary.conflicts
    assert [merged_cell.outcome for merged_cell in summary.cells] == [PASS, HANG]
    assert run.result.cells == summary.cells


def test_a_part_that_did_not_end_leaves_the_whole_incomplete(tmp_path: Path) -> None:
    """A job that was killed had more cells to run: the merged run does not hide it."""
    run_folder = stored(tmp_path / "one", result([OLD], [cell(OLD, PASS)]), planned=5, ended=False)
    _, run = merged(tmp_path / "here", run_folder)
    assert run.result.run.planned == 5
    assert not run.result.is_complete
