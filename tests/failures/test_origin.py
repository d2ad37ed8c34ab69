"""Where the object comes from on which a thread waits, as the source shows it."""

from pathlib import Path

import pytest

from whichtorch.hangs.hang_diagnosis import diagnose
from whichtorch.hangs.source_text import read_site
from whichtorch.hangs.stacks import Frame, Process, Thread, native, python


@pytest.mark.parametrize(
    ("source", "origin", "line"),
    [
        ("work = dist.reduce(x, 0, async_op=True)\nwork.wait()", "dist.reduce", 1),
        ("works = [dist.reduce(x) for x in xs]\nfor work in works:\n    work.wait()", "dist.reduce", 1),
        ("works = []\nworks.append(dist.reduce(x))\nfor work in reversed(works):\n    work.wait()", "dist.reduce", 2),
        ("work = given\nwork.wait()", "", 0),
    ],
)
def test_the_call_that_gave_a_variable_is_found(tmp_path: Path, source: str, origin: str, line: int) -> None:
    """It is followed through loops, lists, and functions that pass on what they are given."""
    file = tmp_path / f"job_{len(source)}.py"  # sources are read once, and pytest uses folders again
    file.write_text(source)
    site = read_site(python("<module>", str(file), source.count("\n") + 1))
    assert (site.origin, site.origin_line) == (origin, line)


def _said_of(file: Path, native_frame: Frame) -> str:
    place = python("<module>", str(file), 2)
    waiting = Thread(tid=1, state="S", frames=(native("__futex_wait", library="libc.so.6"), native_frame, place))
    return diagnose([Process(pid=1, threads=(waiting,))]).summary


def test_what_a_call_works_on_is_not_what_it_waits_for(tmp_path: Path) -> None:
    """The work of a collective is told by the call that began it; a loss whose backward waits for ranks is no work."""
    file = tmp_path / "step.py"
    file.write_text("loss = dist.reduce(x)\nloss.wait()")
    assert "for dist.reduce of line 1" in _said_of(file, native("c10d::Work::wait", library="libtorch_cpu.so"))
    other = tmp_path / "training.py"
    other.write_text("loss = model(x)\nloss.backward()")
    said = _said_of(other, native("c10d::Reducer::finalize_backward", library="libtorch_cpu.so"))
    assert "backward" in said
    assert "of line 1" not in said
