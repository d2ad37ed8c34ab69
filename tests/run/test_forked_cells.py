"""Cells that may begin forked, with fake executors: which attempts fork, and which of them answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from tests.fakes import PASSED, FakeCache, FakeExecutor
from tests.run.test_pipeline import requests, scenario
from whichtorch.matrix.model import Outcome, Record
from whichtorch.matrix.plan import planning
from whichtorch.matrix.records.store import new_run, read_records
from whichtorch.matrix.run import work
from whichtorch.matrix.run.cell_scheduler import CellScheduler
from whichtorch.matrix.run.pipeline import MatrixRun
from whichtorch.matrix.run.site import LocalSite

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from whichtorch.matrix.model import Cell
    from whichtorch.matrix.process.supervision import Ending

FAILED = replace(PASSED, exit_code=1)
FORKED = replace(PASSED, start="fork torch")
REFUSED = replace(FAILED, start="fork torch")
SEEN_RED = ({"outcome": "fail", "why": "a known bug"},)


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MIN_CELLS_TO_FORK", 1)


@dataclass
class ForkedRun:
    """What a run came to, and how many attempts it made in which way."""

    cell: Cell
    forked: int
    cold: int


def run(
    tmp_path: Path,
    *,
    all_cold: bool = False,
    fresh: bool = False,
    repeat: int = 1,
    forks: Ending = FORKED,
    cold: Ending = PASSED,
    expect: Sequence[object] = (),
) -> ForkedRun:
    planned = planning.plan(
        requests("2.0.0"),
        [scenario(tmp_path, "sum", expect=expect)],
        planning.RunOptions(cold=all_cold, fresh=fresh, repeat=repeat),
    )
    starting, forking = FakeExecutor(lambda _: cold), FakeExecutor(lambda _: forks)
    with new_run(tmp_path, ()) as store:
        site = LocalSite(FakeCache(tmp_path), read_records(tmp_path), store, lambda _event: None, starting)
        site.forking = forking
        matrix_run = MatrixRun(planned, CellScheduler(site))
        matrix_run.run()
    return ForkedRun(matrix_run.cells[0], len(forking.tasks), len(starting.tasks))


def records(tmp_path: Path) -> list[Record]:
    """Return the records of all runs."""
    lines = [line for file in sorted(tmp_path.rglob("records.jsonl")) for line in file.read_text().splitlines()]
    return [Record.model_validate_json(line) for line in lines]


def test_an_expected_pass_is_forked_and_counts(tmp_path: Path) -> None:
    """Nothing is started for it, and the record says so."""
    ended = run(tmp_path)
    assert (ended.forked, ended.cold, ended.cell.outcome) == (1, 0, Outcome.PASS)
    assert [record.attempt.evidence.start for record in records(tmp_path)] == ["fork torch"]


def test_a_red_fork_is_confirmed_cold(tmp_path: Path) -> None:
    """The cold attempt alone judges the cell, whatever it comes to; both are on record, with the reason."""
    ended = run(tmp_path, forks=REFUSED)
    assert (ended.forked, ended.cold, ended.cell.outcome) == (1, 1, Outcome.PASS)
    assert [attempt.evidence.start for attempt in ended.cell.attempts] == ["cold"]
    assert [record.attempt.evidence.cold_because for record in records(tmp_path)] == [
        "",
        "its forked attempt ended in FAIL",
    ]
    again = run(tmp_path, forks=REFUSED)
    assert (again.forked, again.cold, again.cell.reused) == (0, 0, 1)


def test_what_is_expected_to_be_red_starts_cold(tmp_path: Path) -> None:
    """A forked attempt of it would have to be confirmed, until a cold one has failed so; it then fails as that did."""
    ended = run(tmp_path, cold=FAILED, expect=SEEN_RED)
    assert (ended.forked, ended.cold, ended.cell.outcome) == (0, 1, Outcome.FAIL)
    again = run(tmp_path, fresh=True, forks=REFUSED, cold=FAILED, expect=SEEN_RED)
    assert (again.forked, again.cold, again.cell.outcome) == (1, 0, Outcome.FAIL)
    otherwise = run(tmp_path, fresh=True, forks=replace(REFUSED, exit_code=3), cold=FAILED, expect=SEEN_RED)
    assert (otherwise.forked, otherwise.cold, otherwise.cell.outcome) == (1, 1, Outcome.FAIL)


def test_only_the_first_attempt_is_forked(tmp_path: Path) -> None:
    """Attempts that are repeated tell of chance: each has a process, hashes and addresses of its own."""
    ended = run(tmp_path, repeat=3)
    assert (ended.forked, ended.cold, len(ended.cell.attempts)) == (1, 2, 3)


def test_few_cells_are_not_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing ahead of a single script takes as long as starting it."""
    monkeypatch.setattr(work, "MIN_CELLS_TO_FORK", 2)
    ended = run(tmp_path)
    assert (ended.forked, ended.cold) == (0, 1)


def test_a_forked_pass_never_answers_for_a_cold_one(tmp_path: Path) -> None:
    """With --cold the cell is run again; without it, what was cold answers as well."""
    run(tmp_path)
    cold = run(tmp_path, all_cold=True)
    assert (cold.forked, cold.cold, cold.cell.reused) == (0, 1, 0)
    again = run(tmp_path)
    assert (again.forked, again.cold) == (0, 0)


def test_the_time_of_a_forked_pass_limits_no_cold_attempt(tmp_path: Path) -> None:
    """A fork has no imports to do."""
    run(tmp_path)
    known = read_records(tmp_path)
    assert known.slowest_pass(scenario(tmp_path, "sum"), {}) is None
    run(tmp_path, all_cold=True)
    assert read_records(tmp_path).slowest_pass(scenario(tmp_path, "sum"), {}) is not None
