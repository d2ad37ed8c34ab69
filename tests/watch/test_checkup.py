"""What the machine has, as `doctor` tells it, with remedies for what it lacks."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whichtorch.process import sandbox
from whichtorch.watch import checkup


@pytest.fixture
def _sandboxes_are_tried_anew() -> Iterator[None]:
    """Forget which sandboxes work: what is found without a PATH holds for no other test."""
    sandbox.why_not.cache_clear()
    yield
    sandbox.why_not.cache_clear()


@pytest.mark.usefixtures("_sandboxes_are_tried_anew")
def test_every_problem_comes_with_a_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with no tools on its PATH and no index, each check that fails says what to do."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("UV_DEFAULT_INDEX", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("WHICHTORCH_PYTORCH_INDEX", "http://127.0.0.1:9/whl")
    monkeypatch.setattr(checkup, "find_tool", lambda name: None)
    checks = {check.name: check for check in checkup.check_up(tmp_path / "state")}
    problems = {name for name, check in checks.items() if check.state is checkup.CheckState.PROBLEM}
    assert {"C++ compiler", "py-spy", "ptrace", "index"} <= problems
    assert all(checks[name].remedy for name in problems)
    assert checks["PyTorch index"].state is checkup.CheckState.INFORMATION


@pytest.mark.skipif(sys.platform != "linux", reason="ptrace is Linux's")
def test_ptrace_is_really_tried() -> None:
    """The check looks at a process of its own with py-spy, whatever comes of it."""
    check = checkup.ptrace_check()
    assert check.name == "ptrace"
    assert "py-spy" in check.found
    assert (check.state is checkup.CheckState.PROBLEM) == bool(check.remedy)
