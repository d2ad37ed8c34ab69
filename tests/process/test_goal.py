"""An attempt with a goal ends when it has had that, however busy the machine was for a while."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE
from tests.process.running import begin, headway_of
from whichtorch.process.evidence import headway
from whichtorch.process.evidence.headway import TreeClock
from whichtorch.process.evidence.sampler import AHEAD, SLACK, seconds_given
from whichtorch.process.spawning import find_tool

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GOAL, MOST = 80.0, 800.0  # seconds
STEP = 0.25  # seconds between two looks


def attempt(stretch: Callable[[float], float]) -> tuple[float, float]:
    """Return when an attempt ends on a machine with such a stretch at each time, and the attempt's own."""
    elapsed, on_core, given = 0.0, 0.0, MOST
    while elapsed < given:
        on_core += STEP / stretch(elapsed)
        elapsed += STEP
        so_far = elapsed / on_core if on_core > headway.WORK_LEAST else None
        given = seconds_given(elapsed, given, GOAL, so_far, MOST)
    return given, elapsed / on_core


@pytest.mark.parametrize(
    ("stretch", "seconds"),
    [
        (lambda _: 1.0, 80),
        (lambda _: 3.0, 240),
        (lambda elapsed: 10.0 if elapsed < 20 else 1.0, 98),  # the load of a moment
        (lambda elapsed: 1.0 if elapsed < 40 else 5.0, 240),
        (lambda elapsed: 8.0 if elapsed < 200 else 1.0, 255),
        (lambda _: 40.0, MOST),  # the limit is the upper bound
    ],
)
def test_the_end_comes_with_the_goal(stretch: Callable[[float], float], seconds: float) -> None:
    """Whenever the machine was busy, the attempt gets its seconds with a core, and little more."""
    end, _ = attempt(stretch)
    assert seconds / SLACK <= end <= seconds + AHEAD


@pytest.mark.parametrize("burst", [70.0, 76.5, 79.0])
def test_a_burst_before_the_end_takes_nothing_of_the_goal(burst: float) -> None:
    """Where the end stands already, a growing queue puts it off before it makes more than a tenth."""
    end, own = attempt(lambda elapsed: 1.0 if elapsed < burst else 30.0)
    assert SLACK * end >= GOAL * own


def test_without_a_measure_the_limit_stands() -> None:
    """An attempt of whose queueing nothing is known, or no longer, runs to its limit."""
    assert seconds_given(10.0, MOST, GOAL, None, MOST) == MOST
    assert seconds_given(70.0, GOAL, GOAL, None, MOST) == MOST
    assert TreeClock(0.0, MOST).stretch is None


@pytest.mark.thorough
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_spin_ends_near_its_goal(tmp_path: Path) -> None:
    """A longer look that has had its seconds ends long before its limit, and its last seconds were sampled."""
    ending = begin(tmp_path, "spins", timeout=PATIENCE, goal=2.0, idle_limit=20.0, sample=True).wait()
    stretch = headway_of(ending).stretch
    assert (ending.stopped_by, ending.problem) == ("timeout", "")
    assert ending.limit is not None
    assert ending.limit <= 3 * (2 * stretch + AHEAD)
    assert 2 * stretch / SLACK <= ending.seconds < PATIENCE
    if find_tool("py-spy"):
        assert (ending.moving, ending.busy) == (False, True)
