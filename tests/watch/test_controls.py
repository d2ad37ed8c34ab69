"""The control scenarios that `doctor` runs: each must get its own outcome."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from whichtorch.base.errors import UsageError
from whichtorch.model import Attempt, Cell, Diagnosis, Outcome, StoppedBy
from whichtorch.model.events import AttemptEnded, AttemptStarted, Event
from whichtorch.process.evidence.capture import NOT_PERMITTED
from whichtorch.watch.controls import Control, control_lines, run_controls


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
