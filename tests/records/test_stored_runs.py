"""Stored runs: read back whole, found by what a user calls them, and several of them made one."""

import os
import shutil
from pathlib import Path

import pytest

from tests.results import FAIL, HANG, PASS, attempt, cell, environment, result, stored
from whichtorch.base.errors import UsageError
from whichtorch.model import Cell, Limits, Outcome, Record, Run, Scenario
from whichtorch.records import store, stored_runs
from whichtorch.records.line_index import Records
from whichtorch.records.store import RunFolder, StoredRun, new_run
from whichtorch.records.stored_runs import Merged, merge
from whichtorch.reports.stored_run_text import run_lines

OLD, NEW = environment("2.11.0"), environment("2.12.1")


def test_a_run_is_read_back_whole(tmp_path: Path) -> None:
    """Scenarios, environments, cells and their attempts are what they were, in the order of the plan."""
    scenario = Scenario(name="family/case", path=Path("case.py"), source_hash="family/case", tags=("meta",))
    made = result([OLD, NEW], [cell(OLD, HANG), cell(NEW, PASS), cell(OLD, PASS, "family/other")])
    made = made.model_copy(update={"scenarios": (scenario,)})
    run_folder = stored(tmp_path, made)
    read = run_folder.read().result
    assert (read.scenarios, read.environments, read.cells) == (made.scenarios, made.environments, made.cells)
    assert read.run.outcomes == {HANG: 1, PASS: 2}
    assert read.run.unexpected == 1
    assert read.is_complete


def test_a_cell_that_ran_twice_is_there_once(tmp_path: Path) -> None:
    """A search runs its bounds again: what it saw last counts."""
    run_folder = stored(tmp_path, result([OLD], [cell(OLD, HANG), cell(OLD, PASS)]))
    assert [read_cell.outcome for read_cell in run_folder.read().result.cells] == [PASS]


def test_a_killed_run_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    """What it had found is there, a torn line is not, and it says that it is not complete."""
    run_folder = stored(tmp_path, result([OLD, NEW], [cell(OLD, PASS)]), ended=False)
    with (run_folder.folder / "cells.jsonl").open("a") as file:
        file.write('{"place": 1, "records": [], "cell": {"envir')
    read = stored_runs.find("latest", tmp_path).read().result
    assert [read_cell.outcome for read_cell in read.cells] == [PASS]
    assert not read.is_complete


def test_files_are_found_where_the_folder_is_taken(tmp_path: Path) -> None:
    """An attempt's output lies in its run's folder, wherever that was copied; another run's beside it."""
    run_folder = stored(tmp_path / "state", result([OLD], [cell(OLD, PASS)]))
    elsewhere = tmp_path / "artifact" / "copy"
    shutil.copytree(run_folder.folder, elsewhere)
    found = stored_runs.find(str(elsewhere), tmp_path / "state").read()
    assert found.file(f"runs/{run_folder.run.id}/attempts/00001/stderr.txt") == elsewhere / "attempts/00001/stderr.txt"
    beside = run_folder.read().file("runs/other/attempts/00001/stderr.txt")
    assert beside == tmp_path / "state/runs/other/attempts/00001/stderr.txt"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a state folder with a run on each of three nights, and a search on the last."""
    for day in ("2026-11-18", "2026-11-19", "2026-11-20"):
        stored(tmp_path, result([OLD], [cell(OLD, PASS)]), day=day, id=f"{day.replace('-', '')}-020000-ab{day[-2:]}")
    stored(tmp_path, result([OLD], [cell(OLD, FAIL)]), day="2026-11-21", id="20261121-030000-cd00", command=("bisect",))
    return tmp_path


@pytest.mark.parametrize(
    ("text", "id_"),
    [
        ("latest", "20261120-020000-ab20"),
        ("latest~0", "20261120-020000-ab20"),
        ("latest~2", "20261118-020000-ab18"),
        ("2026-11-19", "20261119-020000-ab19"),
        ("20261119", "20261119-020000-ab19"),
        ("20261121-030000-cd00", "20261121-030000-cd00"),
    ],
)
def test_a_run_is_found_by_what_a_user_calls_it(home: Path, text: str, id_: str) -> None:
    """Latest and days mean runs of a whole matrix; by its id, or the beginning of it, any run is found."""
    assert stored_runs.find(text, home).run.id == id_


def test_a_run_is_found_in_a_folder_from_elsewhere(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The folder of a run, of a state, or of a downloaded artifact with the one in it; of several the latest."""
    there = tmp_path_factory.mktemp("there")
    shutil.copytree(home, there / "artifact" / ".whichtorch")
    for folder in (there / "artifact", there / "artifact" / ".whichtorch", there / "artifact" / ".whichtorch" / "runs"):
        assert stored_runs.find(str(folder), home).run.id == "20261120-020000-ab20"
    assert len(stored_runs.runs_below(there / "artifact")) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("latest~3", "no run latest~3: of a matrix 3 are stored"),
        ("2026-01-01", "no run was started on 2026-01-01"),
        ("2026112", "2 runs begin with 2026112"),
        ("nightly", "no run is called nightly"),
    ],
)
def test_what_means_no_run_is_told_with_what_there_is(home: Path, text: str, message: str) -> None:
    """A mistake names what is known, or asks for more of the id."""
    with pytest.raises(UsageError, match=message) as caught:
        stored_runs.find(text, home)
    assert caught.value.hint


def test_a_folder_without_a_run_is_told(tmp_path: Path) -> None:
    """An empty artifact is a mistake, not an empty run."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="there is no run in"):
        stored_runs.find(str(tmp_path / "empty"), tmp_path)


def test_a_name_comes_first(home: Path) -> None:
    """Who called a run so means that one."""
    run_folder = stored_runs.find("2026-11-18", home)
    named = run_folder.run.model_copy(update={"name": "before-upgrade"})
    (run_folder.folder / "run.json").write_text(named.model_dump_json())
    assert stored_runs.find("before-upgrade", home).run == Run.model_validate(named)


def test_a_run_in_progress_is_told_from_one_that_was_killed(tmp_path: Path) -> None:
    """While its process has it open it runs; a process that is gone cannot hold it."""
    with store.new_run(tmp_path, ("matrix",), 2) as run_store:
        (head,) = stored_runs.all_runs(tmp_path)
        assert head.is_running
        assert " running " in list(run_lines([head.run], {run_store.run.id}))[-1]
    assert not head.is_running
    assert " did not end " in list(run_lines([head.run], set()))[-1]


def test_damage_is_told_with_the_run_and_a_remedy(tmp_path: Path) -> None:
    """A garbage run.json, and in a run that ended a torn line and one that is nested too deep."""
    whole = stored(tmp_path, result([OLD], [cell(OLD, PASS)]))
    assert not list(stored_runs.damage(tmp_path, [whole]))
    lines = (whole.folder / "cells.jsonl").read_text()
    (whole.folder / "cells.jsonl").write_text('{"place": 1, "cell": {"envir\n' + "[" * 100_000 + "\n" + lines)
    (tmp_path / "runs" / "20260101-000000-bad").mkdir()
    (tmp_path / "runs" / "20260101-000000-bad" / "run.json").write_text("garbage")
    told = list(stored_runs.damage(tmp_path, stored_runs.all_runs(tmp_path)))
    assert len(told) == 2
    assert told[0].startswith("20260101-000000-bad is left out: its run.json cannot be read")
    assert "remove the folder" in told[0]
    assert told[1].startswith(f"{whole.run.id}: line 1 and 1 more of cells.jsonl cannot be read")


def test_a_line_that_a_kill_has_torn_is_no_damage(tmp_path: Path) -> None:
    """The last line of a run that did not end may be half a line."""
    killed = stored(tmp_path, result([OLD, NEW], [cell(OLD, PASS)]), ended=False)
    with (killed.folder / "cells.jsonl").open("a") as file:
        file.write('{"place": 1, "cell": {"envir')
    assert not list(stored_runs.damage(tmp_path, [killed]))


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
    records = Records(tmp_path / "here").of("key")
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
