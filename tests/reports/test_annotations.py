"""GitHub's annotations of a run."""

from pathlib import Path

import pytest

from tests import results
from whichtorch.model import Cell, Environment, Outcome, Scenario
from whichtorch.records.store import StoredRun
from whichtorch.reports.annotations import annotation_lines

OLD, NEW = results.environment("2.11.0"), results.environment("2.12.1")


def red(where: Environment, outcome: Outcome, signature: str | None, **more: object) -> Cell:
    return results.cell(where, outcome, "repros/a,b.py", signature=signature, **more)


def lines(monkeypatch: pytest.MonkeyPatch, *cells: Cell, top: str = "/work/mine") -> list[str]:
    """Return the annotations of cells in a checkout."""
    monkeypatch.setenv("GITHUB_WORKSPACE", top)
    scenario = Scenario(name="repros/a,b.py", path=Path("/work/mine/repros/a,b.py"), source_hash="repros/a,b.py")
    result = results.result([OLD, NEW], cells).model_copy(update={"scenarios": (scenario,)})
    return list(annotation_lines(StoredRun(folder=Path("/state/runs/r"), result=result)))


FAILURE = "RuntimeError in mm (torch/x.py) < layer (model.py:4) < f (a,b.py:7) < <module> (a,b.py:9)"


def test_a_failure_is_one_error_at_the_users_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same failure in two environments is told once, at the script's innermost line; signs are escaped."""
    (line,) = lines(monkeypatch, red(OLD, Outcome.FAIL, FAILURE), red(NEW, Outcome.FAIL, FAILURE))
    head, _, message = line.removeprefix("::error ").partition("::")
    assert head == "file=repros/a%2Cb.py,line=7,title=FAIL! repros/a%2Cb.py"
    assert message == f"{FAILURE}%0Ain torch-2.11.0-pypi, torch-2.12.1-pypi"


def test_a_hang_comes_before_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worst is first, since GitHub shows few; without a line of the script's it is the first line."""
    found = lines(
        monkeypatch, red(OLD, Outcome.FAIL, "exit code 3"), red(NEW, Outcome.HANG, "stuck: lock in a,b.py:12")
    )
    assert [line.split(",")[1:2] for line in found] == [["line=12"], ["line=1"]]


def test_what_is_expected_or_no_failure_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A known failure, a pass and what could not be run are no errors of the script."""
    known = red(OLD, Outcome.FAIL, FAILURE, expected=True)
    assert lines(monkeypatch, known, red(NEW, Outcome.PASS, None), red(NEW, Outcome.ERROR, None)) == []


def test_more_than_github_shows_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten errors, and a notice of the others."""
    found = lines(monkeypatch, *(red(OLD, Outcome.FAIL, f"exit code {code}") for code in range(1, 14)))
    assert [line.partition(" ")[0] for line in found[:10]] == ["::error"] * 10
    assert found[10:] == ["::notice::the report shows 3 more"]


def test_a_script_from_elsewhere_has_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the run was made in another folder, the script is called as in the suite."""
    (line,) = lines(monkeypatch, red(OLD, Outcome.FAIL, FAILURE), top="/other")
    assert line.startswith("::error file=repros/a%2Cb.py,line=7,")
