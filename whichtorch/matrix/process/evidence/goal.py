"""When an attempt with a goal ends: as soon as it has had so many seconds with a core, however busy the machine was.

How much longer the queue for the cores makes it is known at any moment, by the clock of headway. It rises and falls
while an attempt runs, and the end moves with it. The end must be known ahead: its last seconds are sampled.
"""

from __future__ import annotations

from whichtorch.matrix.process.evidence.sampler import LEAD, SPAN

AHEAD = SPAN + LEAD  # seconds before the end from which it is fixed
SLACK = 1.1  # a fixed end is not put off by less than this factor


def seconds_given(elapsed: float, given: float, goal: float, stretch: float | None, most: float) -> float:
    """Return how long an attempt is given in all, of which `elapsed` have passed and which was `given` so far.

    It is given `most` while nothing is known of its `stretch`: without a measure, it may not have had its goal.
    """
    due = most if stretch is None else goal * stretch
    if elapsed >= given - AHEAD and due <= SLACK * given:
        return given
    return min(most, round(max(due, elapsed + AHEAD), 3))
