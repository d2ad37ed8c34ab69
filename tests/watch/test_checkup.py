"""What the machine has and what controls end in, as `doctor` tells it, with remedies for what it lacks."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.model import Attempt, Cell, Diagnosis, Outcome, StoppedBy
from whichtorch.model.events import AttemptEnded, AttemptStarted, Event
from whichtorch.process import sandbox
from whichtorch.process.evidence.capture import NOT_PERMITTED
from whichtorch.watch import checkup
from whichtorch.watch.checkup import Control, control_lines, run_controls

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


def gil_deadlock(outcome: Outcome, *, kind: str = "", note: str = "") -> Cell:
    """Return a cell of the control whose hang is a GIL cycle."""
    diagnosis = Diagnosis(kind=kind)
    attempt = Attempt(outcome=outcome, seconds=1, stopped_by=StoppedBy.STALL, diagnosis=diagnosis, note=note)
    return Cell(
        environment="e",
        scenario="control/gil_deadlock",
        outcome=outcome,
        expected=False,
        seconds=1,
        attempts=(attempt,),
    )


def test_controls_run_without_torch(tmp_path: Path) -> None:
    """The pipeline runs controls in any Python, and tells a wrong outcome from a control's own."""

    @contextmanager
    def quiet(_total: int | None) -> Iterator[Callable[[Event], None]]:
        yield lambda event: None

    globs = ("control/pass", "control/skip", "control/fail", "control/crash[signal=SIGABRT]")
    found = list(run_controls(tmp_path, Path(sys.executable), 2, quiet, globs))
    assert [control.cell.outcome for control in found] == ["crash", "fail", "fail", "pass", "skip"]
    assert [control.problem for control in found] == [None] * 5
    assert all(line.startswith("good") for line in control_lines(found))
    with pytest.raises(UsageError, match="does not run as a Python"):
        next(run_controls(tmp_path, tmp_path / "nowhere", 1, quiet, globs))


def test_wrong_outcome_of_a_control_is_a_problem_with_a_remedy(tmp_path: Path) -> None:
    """A hang that was not recognised makes the doctor say so."""
    wrong = Control(cell=gil_deadlock(Outcome.SLOW), own=Outcome.HANG)
    assert [line.split()[0] for line in control_lines([wrong])] == ["PROBLEM", "remedy:"]
    right = Control(cell=gil_deadlock(Outcome.HANG, kind="GIL cycle"), own=Outcome.HANG)
    assert right.problem is None
    misjudged = Control(cell=gil_deadlock(Outcome.HANG, kind="unknown"), own=Outcome.HANG)
    assert misjudged.problem == "explained as unknown, not as GIL cycle"
    blind = Control(cell=gil_deadlock(Outcome.HANG, kind="unknown", note=NOT_PERMITTED), own=Outcome.HANG)
    assert (blind.problem or "").endswith("not as GIL cycle, for want of permission to read stacks")
    assert blind.remedy == "see ptrace"


def test_controls_that_wait_do_so_at_once(tmp_path: Path) -> None:
    """Nearly all of the time of controls is waiting, so more of them run at once than there are cores."""
    running: set[str] = set()
    most = 0

    @contextmanager
    def counting(_total: int | None) -> Iterator[Callable[[Event], None]]:
        def count(event: Event) -> None:
            nonlocal most
            if isinstance(event, AttemptStarted):
                running.add(event.cell)
            if isinstance(event, AttemptEnded):
                running.discard(event.cell)
            most = max(most, len(running))

        yield count

    found = list(
        run_controls(
            tmp_path, Path(sys.executable), None, counting, ("control/deadlock", "control/stopped", "control/memory")
        )
    )
    assert [control.problem for control in found] == [None] * len(found)
    assert most == 3
