"""What the machine has, as `doctor` tells it, with remedies for what it lacks."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from whichtorch.process import sandbox
from whichtorch.watch import checkup

LOADS = """\
import mmap, pathlib
files = [path.open("rb") for path in pathlib.Path(__file__).parent.glob("lib*")]
loaded = [mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) for file in files]
"""


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
    checks = {check.name: check for check in checkup.check_up(tmp_path / "state", Path(sys.executable))}
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


@pytest.mark.parametrize(
    ("names", "state"),
    [
        (("libgomp-1.so", "libgomp-2.so"), checkup.CheckState.GOOD),
        (("libgomp-1.so", "libiomp5.so"), checkup.CheckState.PROBLEM),
    ],
)
def test_openmp_runtimes_of_two_makers_are_a_problem(
    tmp_path: Path, names: tuple[str, ...], state: checkup.CheckState
) -> None:
    """A torch that loads two runtimes of OpenMP is told with both names; two copies of one runtime are good."""
    for name in names:
        (tmp_path / name).write_text("a library")
    (tmp_path / "torch.py").write_text(LOADS)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    check = checkup.openmp_check(python)
    assert check.state is state
    assert all(name in check.found for name in names)
