"""What CI services and viewers are told, read back by a parser that is not ours."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import junitparser
import pytest

from tests.reports.test_table import NEW, OLD, cell, environment, result
from whichtorch.cli.command import exit_code
from whichtorch.model import UNOBSERVED, Attempt, Cell, Environment, Outcome, Result, StoppedBy
from whichtorch.records.store import StoredRun
from whichtorch.reports.junit import element_of, junit_xml

COMMAND = "whichtorch matrix"
HANG = {"kind": "GIL deadlock", "summary": "boxed kernel, waiting for the GIL", "place": "boxed kernel of aten::mm"}


def read(report: Result, folder: Path = Path("/state/runs/r")) -> list[Any]:
    """Return the suites, as junitparser reads them."""
    return list(junitparser.JUnitXml.fromstring(junit_xml(StoredRun(folder=folder, result=report), COMMAND)))


def only(cell: Cell, environment: Environment = NEW) -> Any:
    (suite,) = read(result([environment], [cell]))
    (case,) = suite
    return case


def properties(element: Any) -> dict[str, str]:
    return {item.name: item.value for item in element.child(junitparser.Properties) or ()}


def attempts(*outcomes: Outcome, **fields: Any) -> tuple[Attempt, ...]:
    return tuple(Attempt(outcome=outcome, seconds=1, stopped_by=StoppedBy.EXIT, **fields) for outcome in outcomes)


def test_a_suite_per_environment_with_what_it_is() -> None:
    """Each environment is a suite of its own that says which torch it has; the machine's name is nowhere."""
    named = environment("2.15.0", fingerprint={"git_version": "a" * 40, "hostname": "secret"})
    report = result([OLD, named], [cell(OLD, Outcome.PASS), cell(named, Outcome.FAIL, expected=False)])
    old, new = read(report)
    assert (old.name, old.tests, old.failures, old.time) == ("torch-2.11.0-pypi", 1, 0, 1.0)
    assert (new.name, new.tests, new.failures, new.timestamp) == ("torch-2.15.0-pypi", 1, 1, "2026-11-01T00:00:00")
    assert properties(new) == {
        "torch": "2.15.0",
        "python": "3.11.7",
        "build": "pypi",
        "config": "default",
        "environment": "2.15.0/default",
        "git_version": "a" * 40,
        "run": "r",
        "incomplete": "the run did not come to its end",
    }
    assert b"secret" not in junit_xml(StoredRun(folder=Path(), result=report), COMMAND)


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_its_element(outcome: Outcome) -> None:
    """What nobody expects is a failure, an error or skipped by its outcome, which is the type; only a pass is none."""
    elements = only(cell(NEW, outcome, expected=outcome is Outcome.PASS)).result
    found = [(type(result_element).__name__.lower(), result_element.type) for result_element in elements]
    assert found == ([] if outcome is Outcome.PASS else [(outcome.row.junit, str(outcome))])


def test_a_hang_says_where_it_is_stuck_and_how_to_go_on(tmp_path: Path) -> None:
    """A hang is a failure with its place, the ends of what it wrote, its files, and the command that runs it again."""
    folder = tmp_path / "runs" / "r"
    (folder / "attempts").mkdir(parents=True)
    (folder / "attempts" / "stderr.txt").write_text("".join(f"line {number}\n" for number in range(1000)))
    files = {"stderr": "runs/r/attempts/stderr.txt", "stacks": "runs/r/attempts/stacks", "diagnosis": HANG}
    hung = cell(NEW, Outcome.HANG, expected=False, attempts=attempts(Outcome.HANG, **files))
    (suite,) = read(result([NEW], [hung]), folder)
    (case,) = suite
    (failure,) = case.result
    assert isinstance(failure, junitparser.Failure)
    assert (failure.type, failure.message) == ("hang", "boxed kernel, waiting for the GIL")
    lines = failure.text.splitlines()
    assert "stage: boxed kernel of aten::mm" in lines
    assert "line 4" in lines
    assert "line 5" not in lines
    assert "… 970 lines …" in lines
    assert "line 999" in lines
    assert f"log: {folder / 'attempts' / 'stderr.txt'}" in lines
    assert f"stacks: {folder / 'attempts' / 'stacks'}" in lines
    assert lines[-1] == ("rerun: whichtorch matrix 'family/case[op=mm]' --torch 2.12.1 --build pypi --fresh")


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome.is_red])
def test_an_expected_failure_turns_nothing_red(outcome: Outcome) -> None:
    """A known issue is a plain case; its properties say what it is."""
    case = only(cell(NEW, outcome, known="issue 12", signature="stuck in take (a.py)"))
    assert case.result == []
    assert properties(case) == {
        "outcome": str(outcome),
        "expected": "true",
        "known": "issue 12",
        "signature": "stuck in take (a.py)",
    }


def test_an_unexpected_or_doubted_pass_is_a_pass_and_says_so() -> None:
    """What passes turns nothing red: that it should have failed, or that nobody could see, are its properties."""
    case = only(cell(NEW, Outcome.PASS, expected=False, known="broken until 2.13"))
    assert case.result == []
    assert properties(case) == {"outcome": "pass", "expected": "false", "known": "broken until 2.13"}
    doubt = f"{UNOBSERVED}: no profiler"
    assert properties(only(cell(NEW, Outcome.PASS, reason=doubt)))["doubt"] == doubt
    assert properties(only(cell(NEW, Outcome.PASS))) == {}


def test_a_flaky_cell_is_what_its_outcome_is() -> None:
    """One unexpected hang of three attempts is a failure, and how often is said; an expected one is not."""
    made = attempts(Outcome.PASS, Outcome.HANG, Outcome.PASS)
    case = only(cell(NEW, Outcome.HANG, expected=False, attempts=made))
    assert isinstance(case.result[0], junitparser.Failure)
    assert properties(case)["flaky"] == "1 of 3"
    assert only(cell(NEW, Outcome.HANG, attempts=made)).result == []


@pytest.mark.parametrize(
    "cells",
    [[cell(NEW, outcome, expected=expected)] for outcome in Outcome for expected in (True, False)]
    + [[cell(NEW, Outcome.ERROR, expected=False), cell(NEW, Outcome.OOM, expected=False, scenario="family/other")]],
)
def test_elements_agree_with_the_exit_code(cells: Sequence[Cell]) -> None:
    """There is a failure where the exit code is 1, an error and no failure where it is 3, and else neither."""
    elements = {element_of(shown) for shown in cells}
    implied = 1 if "failure" in elements else 3 if "error" in elements else 0
    failed = any(shown.is_red and not shown.expected for shown in cells)
    assert implied == exit_code([(shown.outcome, shown.expected) for shown in cells], failed=failed)


def test_cells_are_told_apart_by_class_and_name_alone() -> None:
    """GitLab looks at no suite: the same test in two environments is two classes, dots only before the family."""
    single = environment("2.11.0", id="other", label="torch-2.11.0-pypi-single-thread")
    scripts = [cell(OLD, Outcome.PASS, scenario="../a.b/repro.py", variant={}), cell(single, Outcome.PASS)]
    suites = read(result([OLD, single], [cell(OLD, Outcome.PASS), *scripts]))
    assert [(case.classname, case.name) for suite in suites for case in suite] == [
        ("torch-2.11.0-pypi.family", "family/case[op=mm]"),
        ("torch-2.11.0-pypi.script", "../a.b/repro.py"),
        ("torch-2.11.0-pypi-single-thread.family", "family/case[op=mm]"),
    ]


def test_a_nightly_keeps_its_class_from_night_to_night() -> None:
    """The one nightly of a run is called so; where there are two, each by its version."""

    def nightly(day: int) -> Environment:
        version = f"2.16.0.dev202611{day:02d}"
        return environment(version, id=version, label=f"torch-{version}-nightly-cpu")

    def classes(*environments: Environment) -> list[str]:
        suites = read(result([*environments], [cell(where, Outcome.PASS) for where in environments]))
        return [case.classname for suite in suites for case in suite]

    assert classes(nightly(1)) == classes(nightly(2)) == ["torch-nightly-nightly-cpu.family"]
    assert len(set(classes(nightly(1), nightly(2)))) == 2


HOSTILE = "\x1b[31mred\x1b[0m \x00\x08\ud800\ufffe ]]> <script>&amp; 'q' \"q\" é \U0001f525\r\nnext"


def test_whatever_a_script_wrote_makes_good_xml(tmp_path: Path) -> None:
    """Characters that XML cannot hold are written out, terminal escapes are gone, all others arrive as they are."""
    folder = tmp_path / "runs" / "r"
    folder.mkdir(parents=True)
    (folder / "err").write_bytes(HOSTILE.encode(errors="surrogatepass") + b"\xff\xc3(\n" + b"x" * 100_000)
    hostile = cell(
        NEW,
        Outcome.FAIL,
        expected=False,
        scenario=f"family/{HOSTILE}",
        variant={"op": HOSTILE},
        signature=HOSTILE,
        attempts=attempts(Outcome.FAIL, stderr="runs/r/err", message=HOSTILE),
    )
    text = "red \\x00\\x08\\ud800\\ufffe ]]> <script>&amp; 'q' \"q\" é \U0001f525 next"
    (suite,) = read(result([environment("2.12.1", label=HOSTILE)], [hostile]), folder)
    (case,) = suite
    (failure,) = case.result
    assert suite.name == text
    assert case.name == f"family/{text}[op={text}]"
    assert properties(case)["signature"] == text
    assert text in failure.message
    assert failure.message in failure.text
    assert max(map(len, failure.text.splitlines())) < 700


def test_an_environment_that_cannot_be_had_says_why(tmp_path: Path) -> None:
    """Its cells are errors with its reason and the end of its log."""
    logs = tmp_path / "envs" / "key" / "install.log", tmp_path / "elsewhere.log"
    for log in logs:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text("no wheel for this platform\n")
        gone = environment("9.9.9", outcome=Outcome.UNBUILDABLE, reason="no wheel", log=log)
        unbuildable = cell(gone, Outcome.UNBUILDABLE, expected=False, attempts=(), reason="no wheel")
        ((case,),) = read(result([gone], [unbuildable]), tmp_path / "runs" / "r")
        (error,) = case.result
        assert isinstance(error, junitparser.Error)
        assert (error.type, error.message) == ("unbuildable", "no wheel")
        # a run from elsewhere may name any file of this machine
        assert ("no wheel for this platform" in error.text) is (log == logs[0])


@pytest.mark.parametrize(
    "path", ["../../secret", "runs/r/../../../secret", "/{folder}/secret", "runs/r/link", "runs/r/\0"]
)
def test_a_file_outside_of_the_runs_is_not_shown(tmp_path: Path, path: str) -> None:
    """Whatever path or link a run from elsewhere has, its report tells nothing of this machine."""
    run = tmp_path / "state" / "runs" / "r"
    run.mkdir(parents=True)
    (tmp_path / "secret").write_text("of this machine")
    (run / "link").symlink_to(tmp_path / "secret")
    stderr = path.format(folder=tmp_path)
    made = cell(NEW, Outcome.FAIL, expected=False, attempts=attempts(Outcome.FAIL, stderr=stderr, stderr_bytes=9))
    stored = StoredRun(folder=run, result=result([NEW], [made]))
    assert b"of this machine" not in junit_xml(stored, COMMAND)
    (run / "link").unlink()
    (run / "link").write_text("of the script")
    assert (b"of the script" in junit_xml(stored, COMMAND)) is (path == "runs/r/link")


def test_a_run_without_cells_is_a_report() -> None:
    """An environment that was not reached is an empty suite."""
    (suite,) = read(result([NEW], []))
    assert (suite.tests, list(suite)) == (0, [])
