"""A busy process at its timeout moves on, or spins on the spot."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.process.running import begin, run
from whichtorch.process.evidence import sampler
from whichtorch.process.spawning import find_tool

if TYPE_CHECKING:
    from pathlib import Path

    from whichtorch.process.supervision import Ending

pytestmark = pytest.mark.xdist_group("stacks")  # the tests share the programs they start
needs_py_spy = pytest.mark.skipif(
    sys.platform != "linux" or find_tool("py-spy") is None, reason="needs /proc and py-spy"
)


def frame(name: str, line: int) -> dict[str, object]:
    """Return a frame as py-spy writes it."""
    return {"name": name, "filename": "a.py", "line": line}


def test_another_innermost_function_is_another_spot() -> None:
    """A loop of two lines in one function does not move; a single sample leaves it open."""
    names = (("loop", 3), ("loop", 4), ("save", 3))
    third, fourth, other = (sampler.innermost_functions([frame(*name), frame("main", 9)]) for name in names)
    assert sampler.is_moving([third, fourth]) is False
    assert sampler.is_moving([third, other]) is True
    assert sampler.is_moving([third]) is None


def test_long_attempts_are_sampled_all_along() -> None:
    """Most samples are of the last seconds; an attempt that lasts is looked at before, too."""
    assert sampler.schedule(100.0, 60.0) == [64.0, 76.0, 88.0, 97.0, 97.75, 98.5, 99.25]
    assert sampler.schedule(100.0, 4.0) == [98.0, 98.5, 99.0, 99.5]


def test_a_deadline_that_moves_takes_its_samples_along() -> None:
    """Those of the end move with it; of those before, none is taken twice, and none late because the end drew near."""
    aimed = sampler.Sampler("/no/such/py-spy", {})
    aimed.aim(10.0, 80.0, 80.0)
    assert aimed.due == [32.0, 48.0, 64.0, *(77.0, 77.75, 78.5, 79.25)]
    for now in (31.0, 32.0):
        aimed.look(now, [])
    assert aimed.due[0] == 48.0
    aimed.aim(40.0, 160.0, 160.0)
    assert aimed.due == [96.0, 128.0, *(157.0, 157.75, 158.5, 159.25)]
    aimed.aim(70.0, 100.0, 100.0)
    assert aimed.due == [80.0, *(97.0, 97.75, 98.5, 99.25)]
    for now in (80.0, 97.0):
        aimed.look(now, [])
    aimed.aim(98.0, 102.0, 102.0)
    assert aimed.due == [99.0, 99.75, 100.5, 101.25]


def test_only_what_was_seen_in_the_end_tells() -> None:
    """Where the end moves away, what was seen before no longer tells whether the tree is busy."""
    aimed = sampler.Sampler("/no/such/py-spy", {})
    aimed.aim(10.0, 80.0, 80.0)
    for now in (31.0, 64.0):
        aimed.look(now, [])
    assert aimed.busy is False
    aimed.aim(65.0, 160.0, 160.0)
    assert aimed.busy is None


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ending]:
    """Run the busy programs side by side; what a crowded machine kept from being sampled runs again, alone."""
    folder: Path = tmp_path_factory.mktemp("busy")
    names = ["spins", "spins_in_c", "moves_on", "ignores_sigterm", "waits_for_busy_child"]
    started = {name: begin(folder / name, name, timeout=5.0, stall=True, sample=True) for name in names}
    started["blind"] = begin(
        folder / "blind", "spins", timeout=2.0, sample=True, collectors={"py-spy": "/no/such/py-spy"}
    )
    seen = {name: supervised.wait() for name, supervised in started.items()}
    for timeout in (10.0, 20.0, 40.0):
        for name in ("spins", "spins_in_c", "moves_on"):
            if "too long" in seen[name].note:
                seen[name] = run(folder / f"{name}-{timeout:.0f}", name, timeout=timeout, stall=True, sample=True)
    return seen


@pytest.mark.thorough
@needs_py_spy
@pytest.mark.parametrize("name", ["spins", "spins_in_c"])
def test_spin_is_not_moving(endings: dict[str, Ending], name: str) -> None:
    """A spin, in Python or in C, runs to its timeout and shows the same frames each time."""
    ending = endings[name]
    assert (ending.stopped_by, ending.moving, ending.note) == ("timeout", False, "")
    assert 2 <= len(ending.evidence.samples) <= sampler.SAMPLES
    assert f"({name}.py:" in " ".join(ending.evidence.samples[0])


@pytest.mark.thorough
@needs_py_spy
def test_work_is_moving(endings: dict[str, Ending]) -> None:
    """A program that makes progress shows different frames."""
    assert (endings["moves_on"].stopped_by, endings["moves_on"].moving) == ("timeout", True)


@pytest.mark.thorough
@needs_py_spy
def test_idle_is_not_sampled(endings: dict[str, Ending]) -> None:
    """The stacks of a process that uses no CPU are not read."""
    ending = endings["ignores_sigterm"]
    assert (ending.stopped_by, ending.busy, ending.moving) == ("timeout", False, None)
    assert not ending.evidence.samples


@pytest.mark.thorough
@needs_py_spy
def test_busy_child_without_python_is_busy(endings: dict[str, Ending]) -> None:
    """A parent that waits for a busy child without Python is busy, and whether the child moves is not known."""
    ending = endings["waits_for_busy_child"]
    assert (ending.stopped_by, ending.busy, ending.moving) == ("timeout", True, None)
    assert "runs no Python" in ending.note or "py-spy" in ending.note


@pytest.mark.thorough
@needs_py_spy
def test_no_py_spy_changes_no_verdict(endings: dict[str, Ending]) -> None:
    """A collector that fails leaves a note, and the verdict is still a timeout."""
    ending = endings["blind"]
    assert (ending.stopped_by, ending.moving) == ("timeout", None)
    assert "py-spy" in ending.note
