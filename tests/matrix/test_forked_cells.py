"""Cells that may begin forked, with fake executors: which attempts fork, and which of them answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from tests.fakes import PASSED, FakeCache, FakeExecutor
from tests.hangs.test_stack_folder import filled
from tests.matrix.test_lab import requests, scenario
from whichtorch.matrix import planning, work
from whichtorch.matrix.cell_scheduler import CellScheduler
from whichtorch.matrix.lab import MatrixRun
from whichtorch.matrix.site import LocalSite
from whichtorch.model import Cell, Condition, Outcome, Record
from whichtorch.process.supervision import Ending, Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import new_run

FAILED = replace(PASSED, exit_code=1)
FORKED = replace(PASSED, start="fork torch")
REFUSED = replace(FAILED, start="fork torch")
STUCK = Ending(stopped_by="stall", seconds=5.0)
KNOWN_BUGS = {outcome: ({"outcome": outcome, "why": "a known bug"},) for outcome in ("fail", "hang", "vacuous")}
MM = Condition(op="aten::mm", under="aten::matmul")
MET = {"operators": [{"op": "aten::mm", "under": ["aten::matmul"], "keys": [], "grad_mode": None}], "all_threads": True}
UNMET = MET | {"operators": []}


@pytest.fixture(autouse=True)
def _few_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "MIN_CELLS_TO_FORK", 1)


@dataclass
class ForkedRun:
    """What a run came to, and how many attempts it made in which way."""

    cells: Sequence[Cell]
    forked: int
    cold: int

    @property
    def cell(self) -> Cell:
        return self.cells[0]


def run(
    tmp_path: Path,
    *,
    all_cold: bool = False,
    fresh: bool = False,
    repeat: int = 1,
    forks: Ending = FORKED,
    cold: Ending | None = PASSED,
    expect: Sequence[object] = (),
    conditions: Sequence[Condition] = (),
    seen: dict[str, object] | None = None,
) -> ForkedRun:
    """Run a cell; where a script is observed, its observer has `seen` something."""

    def ending(ending: Ending | None, task: Task) -> Ending | None:
        if ending is not None and ending.stopped_by == "stall":
            filled(Path(task.env["WHICHTORCH_STACKS"]))
        if observation := task.env.get("WHICHTORCH_OBSERVE"):
            Path(observation).write_text(json.dumps(seen))
        return ending

    tmp_path.mkdir(exist_ok=True)
    planned = planning.plan(
        requests("2.0.0"),
        [scenario(tmp_path, "sum", expect=expect, conditions=conditions)],
        planning.RunOptions(cold=all_cold, fresh=fresh, repeat=repeat),
    )
    starting, forking = FakeExecutor(partial(ending, cold)), FakeExecutor(partial(ending, forks))
    with new_run(tmp_path, ()) as store:
        site = LocalSite(FakeCache(tmp_path), Records(tmp_path), store, lambda _event: None, starting)
        site.forking = forking
        matrix_run = MatrixRun(planned, CellScheduler(site))
        matrix_run.run()
    return ForkedRun(matrix_run.cells, len(forking.tasks), len(starting.tasks))


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


def test_a_red_fork_is_made_once(tmp_path: Path) -> None:
    """If the run ends before a cold attempt has confirmed it, the next run makes that attempt and no other fork."""
    ended = run(tmp_path, forks=REFUSED, cold=None)
    assert (ended.forked, ended.cold) == (1, 1)
    again = run(tmp_path, forks=REFUSED, cold=FAILED)
    assert (again.forked, again.cold, again.cell.outcome) == (0, 1, Outcome.FAIL)
    fresh = run(tmp_path, forks=REFUSED, cold=FAILED, fresh=True)
    assert (fresh.forked, fresh.cold) == (1, 0)


@pytest.mark.parametrize(("outcome", "cold"), [(Outcome.FAIL, FAILED), (Outcome.HANG, STUCK)])
def test_what_is_expected_to_be_red_starts_cold(tmp_path: Path, outcome: Outcome, cold: Ending) -> None:
    """A forked attempt of it would have to be confirmed, until a cold one has ended so; it then counts as that did."""
    expect = KNOWN_BUGS[outcome]
    ended = run(tmp_path, cold=cold, expect=expect)
    assert (ended.forked, ended.cold, ended.cell.outcome) == (0, 1, outcome)
    again = run(tmp_path, fresh=True, forks=replace(cold, start="fork torch"), cold=cold, expect=expect)
    assert (again.forked, again.cold, again.cell.outcome) == (1, 0, outcome)
    otherwise = run(tmp_path, fresh=True, forks=replace(REFUSED, exit_code=3), cold=cold, expect=expect)
    assert (otherwise.forked, otherwise.cold, otherwise.cell.outcome) == (1, 1, outcome)


def test_an_observation_that_is_as_expected_is_forked(tmp_path: Path) -> None:
    """With its conditions met it counts as a cold one does, but not for --cold."""
    ended = run(tmp_path, conditions=(MM,), seen=MET)
    assert (ended.forked, ended.cold, ended.cell.outcome) == (2, 0, Outcome.PASS)
    again = run(tmp_path, conditions=(MM,), seen=MET, fresh=True)
    assert (again.forked, again.cold) == (1, 0)
    cold = run(tmp_path, conditions=(MM,), seen=MET, all_cold=True, fresh=True)
    assert (cold.forked, cold.cold, cold.cell.outcome) == (0, 2, Outcome.PASS)


def test_an_observation_that_is_not_as_expected_is_made_again_cold(tmp_path: Path) -> None:
    """Only a cold one can make a pass vacuous, unless the header says that it is."""
    ended = run(tmp_path, conditions=(MM,), seen=UNMET)
    assert (ended.forked, ended.cold, ended.cell.outcome) == (2, 1, Outcome.VACUOUS)
    assert (
        records(tmp_path)[-1].attempt.evidence.cold_because == "its forked attempt did not show the expected conditions"
    )
    again = run(tmp_path, conditions=(MM,), seen=UNMET)
    assert (again.forked, again.cold, again.cell.outcome) == (0, 0, Outcome.VACUOUS)
    known = run(tmp_path / "known", conditions=(MM,), seen=UNMET, expect=KNOWN_BUGS["vacuous"])
    assert (known.forked, known.cold, known.cell.outcome) == (2, 0, Outcome.VACUOUS)
    met = run(tmp_path / "met", conditions=(MM,), seen=MET, expect=KNOWN_BUGS["vacuous"])
    assert (met.forked, met.cold, met.cell.outcome) == (2, 1, Outcome.PASS)


def test_only_the_first_attempt_is_forked(tmp_path: Path) -> None:
    """Attempts that are repeated tell of chance: each has a process, hashes and addresses of its own."""
    ended = run(tmp_path, repeat=3)
    assert (ended.forked, ended.cold, len(ended.cell.attempts)) == (1, 2, 3)


def test_few_cells_are_not_forked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Importing ahead of a single script takes as long as starting it."""
    monkeypatch.setattr(work, "MIN_CELLS_TO_FORK", 2)
    ended = run(tmp_path)
    assert (ended.forked, ended.cold) == (0, 1)


def test_cells_are_forked_where_enough_of_them_need_the_same_imports(tmp_path: Path) -> None:
    """A compiler that few scripts need is not imported ahead of them; what they share with others is."""
    suite = [scenario(tmp_path, name) for name in ("sum", "product", "compiled", "plain")]
    suite[2].path.write_text("import torch\ntorch.compile(print)")
    suite[3].path.write_text("print(1)")
    planned = planning.plan(requests("2.0.0"), suite, planning.RunOptions())
    made = work.EnvironmentWork(request=planned.requests[0], first=0, cells=dict(enumerate(planned)))
    assert made.fork_levels == {"torch", "torch+compilers+kernels"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(work, "MIN_CELLS_TO_FORK", 2)
        again = work.EnvironmentWork(request=planned.requests[0], first=0, cells=dict(enumerate(planned)))
        assert again.fork_levels == {"torch"}
        assert [work.fork_level(cell, again.fork_levels) for cell in planned] == ["torch", "torch", "torch", ""]
        patch.setattr(work, "MIN_CELLS_TO_FORK", 4)
        few = work.EnvironmentWork(request=planned.requests[0], first=0, cells=dict(enumerate(planned)))
        assert not few.fork_levels


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
    known = Records(tmp_path)
    assert known.slowest_pass(scenario(tmp_path, "sum"), {}) is None
    run(tmp_path, all_cold=True)
    assert Records(tmp_path).slowest_pass(scenario(tmp_path, "sum"), {}) is not None
