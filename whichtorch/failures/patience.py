"""How long a test may take, and how much longer the second look at what was slow: every such number is here.

A timeout is what was asked for: by a user, a header or the default. A limit is what one attempt gets of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from whichtorch.model import Attempt, Headway, Outcome

LONGER = 3  # times the limit, for the longer look at what was slow
BOTH_LOOKS = 1 + LONGER  # times the limit, for the first look and the longer one
LONGER_BESIDE_PASS = 1.5  # times the limit, for the longer look where the test has passed elsewhere
FURTHER = 1.25  # times the last look: the shortest look after it
STRETCH_MOST = 10.0  # times: how much longer the longer look is made on a crowded machine
ENOUGH = 0.8  # of the time with a core that a longer look is to give: with less, it has decided nothing
SOON = 0.5  # of the longer look: a process that wakes by itself within that is waited for once more
BRIEF_PASSES = 2  # times the slowest pass, for a brief look at what hangs: a longer one checks it
BRIEF_SHARE = 0.25  # of the timeout, for a brief look where the test has passed nowhere
KNOWN_RUNS = 2  # times the longest run known, of a test without a limit of its own


class Margin(NamedTuple):
    """How much longer than a run that is known another one may take."""

    times: float
    shortest: float  # seconds: a busy machine may stop a process for some

    def limit(self, seconds: float, timeout: float) -> float:
        """Return the limit of a run, if a known one took so many seconds."""
        return min(timeout, max(self.shortest, self.times * seconds))


BESIDE_PASS = Margin(10, 10.0)  # of the slowest pass elsewhere: well beyond the variation of a busy machine
SAME_FAILURE = Margin(4, 10.0)  # of the longest run that failed: what takes longer fails in another way
CURE = Margin(4, 30.0)  # of the pass in the good release
CURE_OF_HANG = Margin(2.5, 10.0)  # the same, where each trial that is no cure takes the whole limit


class LongerLook(NamedTuple):
    """The second look at what was slow."""

    goal: float  # seconds with a core
    limit: float  # seconds: as many if the machine stays as busy as it was


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a test may take in an environment, by what is known of it."""

    timeout: float  # seconds
    looks_longer: bool = True  # nobody chose the timeout: what is slow gets a longer look
    slowest_pass: float | None = None  # seconds, in any environment; None where it has passed nowhere
    longest_run: float = 0  # seconds, of those that ended by themselves
    is_provisional: bool = False  # what is slow is left at that, for now
    in_search: bool = False  # it is compared with passes: what takes many times as long is as bad as a hang
    has_run_out: bool = False  # it has used up its time in some environment

    @property
    def due(self) -> float:
        """The seconds of a usual look: the timeout, or less once the test has passed elsewhere."""
        return self.timeout if self.slowest_pass is None else BESIDE_PASS.limit(self.slowest_pass, self.timeout)

    def first_limit(self, *, is_known: bool, slowdown: float) -> float:
        """Return the limit of a first look; one that is shorter than `due` is brief.

        It is brief where a busy hang `is_known`, because the same place shown again confirms it, and where the test
        has run out of time before. Another look checks what is not confirmed. The limit grows with the machine's
        `slowdown` where a slow run could be taken for the hang that is searched for, and where the test is known to
        take long. It never exceeds a timeout that the user chose.
        """
        if is_known or (self.is_provisional and self.has_run_out):
            brief = BRIEF_SHARE * self.due if self.slowest_pass is None else BRIEF_PASSES * self.slowest_pass
            needed = min(self.due, max(BESIDE_PASS.shortest, brief) * slowdown)
        else:
            needed = self.due * slowdown if self.is_provisional else self.due
        most = BOTH_LOOKS * self.due if self.looks_longer else self.due
        return min(max(needed, KNOWN_RUNS * self.longest_run * slowdown), most)

    def longer_look(self, slow: Attempt) -> LongerLook:
        """Return the longer look at a slow attempt. A search compares it with the passes elsewhere."""
        due, times = self.due, float(LONGER)
        if self.slowest_pass is not None and self.in_search:
            times = LONGER_BESIDE_PASS
            due = max(due, BESIDE_PASS.times / times * self.slowest_pass)
        return longer_look(slow, due, LONGER * self.timeout, times)

    def had_longer_look(self, last: Attempt, attempts: Iterable[Attempt]) -> bool:
        """Return whether a longer look, one of a test's `attempts`, has left it slow in the loop of its last one."""
        loop = last.evidence.loop
        return loop is not None and any(
            each.outcome is Outcome.SLOW
            and each.limit > self.timeout
            and each.evidence.loop is not None
            and each.evidence.loop.place == loop.place
            for each in attempts
        )


def longer_look(slow: Attempt, due: float, most: float, times: float = LONGER) -> LongerLook:
    """Return the longer look at a slow attempt, of `most` seconds at most.

    It is several `times` as long as that was, and as the test is due where that was brief. It outlasts a sleep that is
    known to end.
    """
    headway = slow.evidence.headway
    goal, further = times * max(due, slow.limit), FURTHER * slow.limit
    if headway and headway.wakes_in is not None:
        goal = max(goal, further + LONGER * headway.wakes_in)
    return LongerLook(min(goal, most), min(max(goal * _stretch(headway), further), most))


def reached_goal(goal: float, seconds: float, headway: Headway | None) -> bool:
    """Return whether an attempt of so many seconds, that got on like this, had the seconds with a core of a goal."""
    return seconds >= ENOUGH * goal * _stretch(headway)


def _stretch(headway: Headway | None) -> float:
    return min(max(headway.stretch, 1.0), STRETCH_MOST) if headway else 1.0
