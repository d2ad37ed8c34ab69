"""Observing attempts, with fakes: when they are made, that they decide nothing but vacuous, and native builds."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import PASSED
from tests.hangs.test_stack_folder import filled
from tests.matrix.test_lab import requests, run, scenario
from whichtorch.cli import Exit, exit_code
from whichtorch.explain.explainer import RecordedEvidence
from whichtorch.explain.explanation import explain
from whichtorch.matrix import planning
from whichtorch.matrix.judgement import decided
from whichtorch.model import Condition, Outcome, Result, Role, Run
from whichtorch.process.supervision import Ending, Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import StoredRun
from whichtorch.reports.explanation_text import explanation_lines
from whichtorch.reports.table import cell_word, red_lines

Behave = Callable[[Task], Ending | None]

MM = Condition(op="aten::mm", under="aten::matmul")
STUCK = Ending(stopped_by="stall", exit_code=None, signal=None, seconds=5.0)
FAILED = Ending(stopped_by="exit", exit_code=1, signal=None, seconds=1.0)


def is_observed(task: Task) -> bool:
    return "WHICHTORCH_OBSERVE" in task.env


def dispatching(*ops: tuple[str, list[str]], observed: Ending = PASSED, **fields: Any) -> Behave:
    """Return a script that passes, and whose observer saw operators under others."""
    rest: dict[str, Any] = {"keys": [], "grad_mode": None, "thread": None, "python_key": None}
    seen = {"operators": [{"op": op, "under": under} | rest for op, under in ops], "all_threads": True} | fields

    def behave(task: Task) -> Ending:
        if not is_observed(task):
            return PASSED
        Path(task.env["WHICHTORCH_OBSERVE"]).write_text(json.dumps(seen))
        return observed

    return behave


def planned(
    tmp_path: Path,
    *versions: str,
    options: planning.RunOptions | None = None,
    conditions: tuple[Condition, ...] = (MM,),
    **fields: Any,
) -> Sequence[planning.PlannedCell]:
    suite = [scenario(tmp_path, "one", conditions=conditions, **fields)]
    return planning.plan(requests(*(versions or ("2.0.0",))), suite, options or planning.RunOptions())


MET = dispatching(("aten::matmul", []), ("aten::mm", ["aten::matmul"]))
UNMET = dispatching(("aten::addmm", []), ("aten::mm", ["aten::addmm"]))


def test_a_pass_with_its_conditions_is_a_pass(tmp_path: Path) -> None:
    """The observing attempt comes second, under the observer's hook, and the cell names what was met."""
    ended = run(tmp_path, planned(tmp_path), MET)
    assert [is_observed(task) for task in ended.executor.tasks] == [False, True]
    assert ended.executor.tasks[1].env["WHICHTORCH_HOOKS"] == "observe"
    (cell,) = ended.run.cells
    assert (cell.outcome, cell.expected, cell.reason) == (Outcome.PASS, True, None)
    assert [result.met for result in cell.conditions] == [True]
    assert not cell.is_doubted
    assert len(cell.attempts) == 1


def test_a_pass_without_its_conditions_is_vacuous(tmp_path: Path) -> None:
    """What was dispatched instead is the reason; unexpected, it is marked, but not red."""
    ended = run(tmp_path, planned(tmp_path), UNMET)
    (cell,) = ended.run.cells
    assert cell.outcome is Outcome.VACUOUS
    assert cell.reason == "aten::mm was dispatched under aten::addmm, not under aten::matmul"
    assert cell.flaky is None
    assert cell.is_doubted
    assert cell_word(cell) == "vacuous!"
    assert not cell.is_red
    assert exit_code([(cell.outcome, cell.expected)], failed=cell.is_red) is Exit.GOOD


def test_vacuous_may_be_expected(tmp_path: Path) -> None:
    """A header that says so gets a cell without a mark."""
    ended = run(tmp_path, planned(tmp_path, expect=({"outcome": "vacuous"},)), UNMET)
    assert cell_word(ended.run.cells[0]) == "vacuous"


def test_nothing_is_observed_twice(tmp_path: Path) -> None:
    """A later run knows the observation with the rest; more attempts ask for no second one."""
    run(tmp_path, planned(tmp_path), UNMET)
    again = run(tmp_path, planned(tmp_path), UNMET)
    assert again.executor.tasks == []
    assert (again.run.cells[0].outcome, again.run.cells[0].reused) == (Outcome.VACUOUS, 1)
    more = run(tmp_path, planned(tmp_path, options=planning.RunOptions(repeat=3)), UNMET)
    assert [is_observed(task) for task in more.executor.tasks] == [False, False]
    assert more.run.cells[0].outcome is Outcome.VACUOUS


def test_a_pass_from_before_is_observed_now(tmp_path: Path) -> None:
    """Records without an observation get only the attempt that is missing."""
    kept = planned(tmp_path)
    run(tmp_path, kept, MET)
    for file in (tmp_path / "runs").glob("*/records.jsonl"):
        file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if '"observe"' not in line))
    again = run(tmp_path, kept, UNMET)
    assert [is_observed(task) for task in again.executor.tasks] == [True]
    assert again.run.cells[0].outcome is Outcome.VACUOUS


@pytest.mark.parametrize("ending", [STUCK, FAILED])
def test_only_a_pass_is_observed(tmp_path: Path, ending: Ending) -> None:
    """What hung, without stacks, or failed has no conditions observed."""
    ended = run(tmp_path, planned(tmp_path), lambda task: ending)
    assert len(ended.executor.tasks) == 1
    assert ended.run.cells[0].conditions == ()


def stuck_in_mm(task: Task) -> Ending:
    """Hang as a real process did, whose stacks were taken."""
    filled(Path(task.env["WHICHTORCH_STACKS"]))
    return STUCK


def test_the_stacks_of_a_hang_tell_of_its_conditions(tmp_path: Path) -> None:
    """They are shown beside the hang, which stays one, and a later run knows them with the rest."""
    conditions = (MM, Condition(op="aten::mm", thread="main"), Condition(op="aten::mm", grad_mode=True))
    for is_reused in (False, True):
        cell = run(tmp_path, planned(tmp_path, conditions=conditions), stuck_in_mm).run.cells[0]
        assert (cell.outcome, bool(cell.reused)) == (Outcome.HANG, is_reused)
        assert [result.met for result in cell.conditions] == [True, False, None]
        assert cell.conditions[1].seen == "aten::mm was dispatched in another thread, not in the main one"


@pytest.mark.parametrize(
    ("conditions", "behave", "shown"),
    [
        ((MM,), stuck_in_mm, "conditions met"),
        ((Condition(op="aten::bmm"),), stuck_in_mm, "conditions: not known whether aten::bmm was dispatched"),
        ((), stuck_in_mm, ""),
        ((MM,), lambda task: STUCK, ""),
    ],
)
def test_a_hang_is_shown_with_its_conditions(
    tmp_path: Path, conditions: tuple[Condition, ...], behave: Behave, shown: str
) -> None:
    """The cell's line says what became of them, and `explain` too; where none are declared, or seen, neither does."""
    cells = planned(tmp_path, conditions=conditions)
    ended = run(tmp_path, cells, behave)
    result = Result(run=Run(id="1", started=""), environments=ended.run.environments, cells=ended.run.cells)
    (line,) = red_lines(StoredRun(folder=tmp_path, result=result), "whichtorch matrix")
    what = ended.run.cells[0].what
    assert line.partition("; log ")[0].endswith(f"  torch-2.0.0-pypi: {what}" + (f"; {shown}" if shown else ""))
    seen = RecordedEvidence.stored(tmp_path, Records(tmp_path)).of(cells[0].scenario, {}, None)
    explained = [line.strip() for line in explanation_lines(explain("one", seen), "", "") if "conditions" in line]
    assert explained == ([f"{shown}, where it hangs (torch-2.0.0-pypi)"] if shown else [])


@pytest.mark.parametrize(
    ("behave", "why"),
    [
        (lambda task: PASSED, "the observer wrote nothing"),
        (dispatching(problem="OSError: none"), "OSError: none"),
        (dispatching(observed=STUCK), "the observed script ended in hang"),
        (dispatching(observed=FAILED), "the observed script ended in fail"),
    ],
)
def test_a_failed_observation_takes_no_pass_back(tmp_path: Path, behave: Behave, why: str) -> None:
    """The pass stays one, and says that its conditions could not be observed."""
    cell = run(tmp_path, planned(tmp_path), behave).run.cells[0]
    assert cell.is_doubted
    assert (cell.outcome, cell.conditions) == (Outcome.PASS, ())
    assert cell.reason == f"conditions could not be observed: {why}"


def test_an_observing_attempt_is_no_measure(tmp_path: Path) -> None:
    """Neither its outcome nor its seconds count for other cells: it is slower than the script."""
    slow = Ending(stopped_by="exit", exit_code=0, signal=None, seconds=50.0)
    run(tmp_path, planned(tmp_path, "2.0.0"), dispatching(observed=slow))
    later = run(tmp_path, planned(tmp_path, "2.1.0"), MET)
    assert [task.timeout for task in later.executor.tasks] == [20, 60]
    cell = planned(tmp_path)[0]
    assert Records(tmp_path).slowest_pass(cell.scenario, {}) == PASSED.seconds
    key = next((tmp_path / "runs").glob("*/records.jsonl")).read_text().partition('"key":"')[2].partition('"')[0]
    records = Records(tmp_path).of(key)
    assert [record.attempt.role for record in records] == [Role.JUDGE, Role.OBSERVE]
    assert decided(planned(tmp_path)[0], records) == 1


# Native sources


def building(*, exit_code: int = 0, log: str = "") -> Behave:
    """Return a builder that makes a module or fails, before scripts that pass."""

    def behave(task: Task) -> Ending:
        if "build_native.py" not in task.argv[1]:
            return PASSED
        Path(task.stdout).write_text(log)
        if exit_code == 0:
            Path(task.argv[2]).touch()
        return Ending(stopped_by="exit", exit_code=exit_code, signal=None, seconds=20.0)

    return behave


def with_native(tmp_path: Path, *versions: str, sandboxed: bool = False) -> Sequence[planning.PlannedCell]:
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "worker.cpp").write_text("int x;")
    fields = {"native": ("worker.cpp",), "variants": {"op": ("mm", "add", "empty")}, "sandboxed": sandboxed}
    return planning.plan(requests(*versions), [scenario(tmp_path, "one", **fields)], planning.RunOptions())


def builds_of(tasks: list[Task]) -> list[Task]:
    return [task for task in tasks if "build_native.py" in task.argv[1]]


def test_native_sources_are_built_once_an_environment(tmp_path: Path) -> None:
    """Cells at once wait for one build, get its path, and a later run builds nothing."""
    ended = run(tmp_path, with_native(tmp_path, "2.0.0"), building(), jobs=3)
    assert len(builds_of(ended.executor.tasks)) == 1
    scripts = [task for task in ended.executor.tasks if "build_native.py" not in task.argv[1]]
    modules = {task.env["WHICHTORCH_NATIVE"] for task in scripts}
    assert len(scripts) == 3
    assert [Path(module).name for module in modules] == ["worker.so"]
    assert all(Path(module).is_relative_to(tmp_path / "native") for module in modules)
    for file in (tmp_path / "runs").glob("*/records.jsonl"):
        file.unlink()
    again = run(tmp_path, with_native(tmp_path, "2.0.0"), building())
    assert (len(again.executor.tasks), builds_of(again.executor.tasks)) == (3, [])


@pytest.mark.parametrize(
    ("exit_code", "why"),
    [
        (120, "there is no C++ compiler; install g++, or name one in CXX"),
        (1, "worker.cpp:1: fatal error: Python.h: No such file"),
    ],
)
def test_a_failed_build_is_the_machine_s_fault(tmp_path: Path, exit_code: int, why: str) -> None:
    """Its cells come to `error` with remedy and log, are tried again by the next run, and start no script."""
    log = "g++ worker.cpp\nworker.cpp:1: fatal error: Python.h: No such file\ncompilation terminated."
    ended = run(tmp_path, with_native(tmp_path, "2.0.0"), building(exit_code=exit_code, log=log))
    assert len(ended.executor.tasks) == 1
    assert {cell.outcome for cell in ended.run.cells} == {Outcome.ERROR}
    reason = ended.run.cells[0].reason or ""
    assert reason.startswith(f"worker.cpp could not be built: {why}; log {tmp_path}")
    assert Path(reason.rpartition("log ")[2]).read_text() == log
    assert {cell.outcome for cell in run(tmp_path, with_native(tmp_path, "2.0.0"), building()).run.cells} == {
        Outcome.PASS
    }


def test_native_sources_are_read_in_the_folder_of_the_script_only(tmp_path: Path) -> None:
    """A source that has become a link out of the folder since its header was read is not built."""
    cells = with_native(tmp_path / "own", "2.0.0")
    (tmp_path / "outside.cpp").write_text("int x;")
    (tmp_path / "own" / "worker.cpp").unlink()
    (tmp_path / "own" / "worker.cpp").symlink_to(tmp_path / "outside.cpp")
    ended = run(tmp_path, cells, building())
    assert ended.executor.tasks == []
    assert (ended.run.cells[0].reason or "").startswith(
        "worker.cpp could not be built: 'worker.cpp' is no file in the script's folder"
    )


def test_a_sandboxed_script_in_a_home_has_no_native_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing beside a script is seen in a sandbox where that is the home, so no file there is built with it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    ended = run(tmp_path, with_native(tmp_path, "2.0.0", sandboxed=True), building())
    assert ended.executor.tasks == []
    assert (ended.run.cells[0].reason or "").startswith(f"worker.cpp lies in {tmp_path}, with other files: ")
