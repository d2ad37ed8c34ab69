"""Records survive whatever happens to the tool."""

from pathlib import Path

import pytest

from whichtorch.base.errors import PreventedError
from whichtorch.model import Attempt, Cell, Limits, Outcome, Record, Scenario, StoppedBy, record_key
from whichtorch.records import store as record_store
from whichtorch.records import stored_runs
from whichtorch.records.line_index import Records
from whichtorch.records.store import new_run

LIMITS = Limits(timeout=60, memory_mb=1000)


def record(outcome: Outcome = Outcome.PASS, *, environment: str = "e", seconds: float = 2, limit: float = 60) -> Record:
    return Record(
        key=record_key(environment, "hash", {"op": "mm"}, LIMITS),
        environment=environment,
        scenario="family/case",
        source_hash="hash",
        variant={"op": "mm"},
        limits=LIMITS,
        attempt=Attempt(outcome=outcome, seconds=seconds, stopped_by=StoppedBy.EXIT, limit=limit),
    )


def scenario(tmp_path: Path) -> Scenario:
    return Scenario(name="family/case", path=tmp_path / "case.py", source_hash="hash")


def test_record_is_on_disk_before_the_run_ends(tmp_path: Path) -> None:
    """A record is flushed at once, so a kill of the tool does not lose it."""
    with new_run(tmp_path, ()) as store:
        store.add_record(record())
        assert (store.folder / "records.jsonl").read_text().endswith("}\n")


def test_torn_line_is_left_out(tmp_path: Path) -> None:
    """A line that a kill cut short costs itself and no other."""
    with new_run(tmp_path, ()) as store:
        store.add_record(record())
    with (store.folder / "records.jsonl").open("a") as file:
        file.write(record(environment="other").model_dump_json(by_alias=True)[:-20])
    records = Records(tmp_path)
    assert records.of(record().key) == [record()]
    assert records.of(record(environment="other").key) == []


def test_slowest_pass_counts_every_environment_and_only_passes(tmp_path: Path) -> None:
    """The slowest pass of a test anywhere is what a shorter limit is made from."""
    records = Records()
    assert records.slowest_pass(scenario(tmp_path), {"op": "mm"}) is None
    for added in (record(seconds=3), record(environment="other", seconds=5), record(Outcome.HANG, seconds=60)):
        records.add(added)
    assert records.slowest_pass(scenario(tmp_path), {"op": "mm"}) == 5
    assert records.slowest_pass(scenario(tmp_path), {"op": "add"}) is None


def test_only_a_long_enough_decided_look_answers(tmp_path: Path) -> None:
    """A record decides a slow test if it was given the time asked for, took about as long, and was not slow itself."""
    records = Records()
    slow = record(Outcome.SLOW, limit=60, seconds=60).attempt
    brief = record(Outcome.PASS, limit=240, seconds=2)  # it shows that the test is not always slow
    for added in (record(Outcome.SLOW, limit=240, seconds=240), record(Outcome.HANG, limit=60, seconds=60), brief):
        records.add(added)
    assert records.decisive("e", scenario(tmp_path), {"op": "mm"}, 240, slow) is None
    long = record(Outcome.HANG, limit=240, seconds=240)
    records.add(long)
    assert records.decisive("e", scenario(tmp_path), {"op": "mm"}, 240, slow) == long
    assert records.decisive("other", scenario(tmp_path), {"op": "mm"}, 240, slow) is None


def test_runs_of_one_second_are_in_order(tmp_path: Path) -> None:
    """Run ids sort by time, so that the latest run is found even where one command follows another at once."""
    ids = []
    for _ in range(20):
        with new_run(tmp_path, ()) as store:
            ids.append(store.run.id)
    assert ids == sorted(ids)


def test_unwritable_state_folder_is_named(tmp_path: Path) -> None:
    """Where nothing can be written the error names the folder and the way out."""
    (tmp_path / "runs").write_text("a file, not a folder")
    with pytest.raises(PreventedError, match="cannot write to") as caught:
        new_run(tmp_path, ())
    assert "WHICHTORCH_HOME" in caught.value.hint


def test_key_depends_on_all_that_makes_a_test() -> None:
    """Environment, source, variant, limits and the user's variables each make another test."""
    keys = {
        record_key("e", "hash", {"op": "mm"}, LIMITS),
        record_key("f", "hash", {"op": "mm"}, LIMITS),
        record_key("e", "other", {"op": "mm"}, LIMITS),
        record_key("e", "hash", {"op": "add"}, LIMITS),
        record_key("e", "hash", {"op": "mm"}, Limits(timeout=10, memory_mb=1000)),
        record_key("e", "hash", {"op": "mm"}, LIMITS, variables="v"),
        record_key("e", "hash", {"op": "mm"}, Limits(timeout=60, memory_mb=1000, stall=False)),
    }
    assert len(keys) == 7


def test_of_a_huge_run_only_tests_that_do_not_simply_pass_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those with the most unexpected cells come first, as far as there is room; the others are counted."""
    monkeypatch.setattr(record_store, "MOST_SHOWN", 5)
    outcomes = {
        "good": "PASS PASS",
        "bad": "FAIL FAIL",
        "known": "HANG PASS",
        "worse": "PASS CRASH",
        "bad too": "FAIL PASS",
    }
    with new_run(tmp_path, ("matrix",)) as store:
        for name, words in outcomes.items():
            for environment, word in zip("ef", words.split(), strict=True):
                expected = word == "PASS" or name == "known"
                cell = Cell(environment=environment, scenario=name, outcome=Outcome[word], expected=expected, seconds=1)
                store.add_cell(cell, [])
        shown = store.shown()
    assert {cell.name for cell in shown.result.cells} == {"bad", "bad too"}
    assert shown.left_out == {(Outcome.PASS, True): 4, (Outcome.HANG, True): 1, (Outcome.CRASH, False): 1}
    assert len(store.stored().result.cells) == 10


def test_a_cell_without_its_environment_is_read_all_the_same(tmp_path: Path) -> None:
    """A kill between a known cell and its environment's line costs the environment's facts, not the cell."""
    cell = Cell(environment="gone", scenario="a", outcome=Outcome.FAIL, expected=False, seconds=1)
    with new_run(tmp_path, ("matrix",), 1) as store:
        store.add_cell(cell, [])
    (run_folder,) = stored_runs.all_runs(tmp_path)
    result = run_folder.read().result
    assert result.cells == (cell,)
    assert [(environment.id, environment.label, environment.torch) for environment in result.environments] == [
        ("gone", "gone", "unknown")
    ]
