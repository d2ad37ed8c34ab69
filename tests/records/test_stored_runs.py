"""Stored runs: read back whole, and found by what a user calls them."""

import shutil
from pathlib import Path

import pytest

from tests.results import FAIL, HANG, PASS, cell, environment, result, stored
from whichtorch.base.errors import UsageError
from whichtorch.model import Run, Scenario
from whichtorch.records import store, stored_runs
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
