"""How long a test may take, how much longer the second look at what was slow, and whether what was stopped then hangs.

A timeout is what was asked for: by a user, a header or the default. A limit is what one attempt gets of it. A hang is
told from what is only slow by facts of three kinds: how the tree got on over the whole attempt
(`process.evidence.headway`), where its samples found it, and what its stacks show. None of them is bent by a busy
machine: who waits for a core, the disk or a compiler gets on.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.failures.failure import STUCK, Signature
from whichtorch.model import WAITED, Attempt, Headway, Outcome
from whichtorch.process.evidence.waiting import HangKind

if TYPE_CHECKING:
    from whichtorch.process.supervision import Ending

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
BUSY = 0.5  # of a core over the whole attempt: above, it worked, where nobody looked at its last seconds
SIGNATURE_FRAMES = 2  # innermost ones of a spin

_MEANS = {  # how a tree gets on, besides using a core
    "processes": "processes come and go",
    "disk": "it waits for the disk or uses it",
    "streams": "data flows",
    "output": "it writes output",
}
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")


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


class Decider(StrEnum):
    """Which evidence decided whether what was stopped is a hang or only slow."""

    STALL = "stall"  # nothing in the tree can ever go on
    REPEATS = "repeated state"  # a loop of Python came back to the same state
    IDLE = "idle"  # it did nothing for so long that it does not come back from that
    SAME_PLACE = "same place"  # busy, and where it was busy before
    KNOWN_PLACE = "known place"  # busy at a place that was shown to be a hang of this test
    LONGER_LOOK = "longer look"  # it was given several times as long
    PROGRESS = "progress"  # the variables of the user's loop change
    COMPILE = "compile"  # a compiler is at work
    MOVING = "moving"  # its frames change
    HEADWAY = "headway"  # it got on by other means than a core: the disk, processes, output
    ASLEEP = "asleep"  # it sleeps by its own will, and wakes within the longer look
    CROWDED = WAITED  # it waited for a core so long that its time is no time to speak of
    NATIVE = "native"  # busy at one place of native code: perhaps a single long operation
    OPEN = "open"  # busy, or idle for a moment only: nothing more is known


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedLook:
    """What a verdict on a stopped attempt takes into account beyond its ending: facts, not what is said of them."""

    kind: HangKind | None = None  # that the stacks show; None where none could be read
    is_proven: bool = False  # they show that its main thread never goes on
    place: str = ""  # the user's line that is busy: "train.py:4"
    goal: float | None = None  # seconds with a core that the longer look at what was slow is to give
    is_brief: bool = False  # shorter than the test is due
    is_again: bool = False  # after one that was slow
    hung_before: Callable[[str], bool] = lambda _: False  # this signature was shown to be a hang
    killed: str = ""  # the signal that ended a process of the tree, of those that no Python code of it sent

    @property
    def is_longer(self) -> bool:
        """True where the attempt is the longer look at what was slow."""
        return self.goal is not None

    def is_enough(self, ending: Ending) -> bool:
        """Return whether a longer look gave what it was to give, and does not end just before a sleeper wakes."""
        if self.goal is None:
            return False
        headway = ending.evidence.headway
        if headway and headway.wakes_in is not None and headway.wakes_in < SOON * ending.seconds:
            return False
        if headway and headway.wakes_in is None and not headway.makes_headway:
            return True  # it did nothing for as long as the whole look before, which ends this one early
        return reached_goal(self.goal, ending.seconds, headway)

    @property
    def is_native(self) -> bool:
        """True where what is busy at one place may be a single operation in native code: Python code is not."""
        return self.kind in {None, HangKind.SPIN_NATIVE, HangKind.UNKNOWN}


PLAIN_LOOK = StoppedLook()


def timeout_outcome(ending: Ending, look: StoppedLook) -> tuple[Outcome, str, Decider]:
    """Tell a hang from what is slow, by the first of these that is known.

    A compiler at work is slow. What did nothing for long enough is a hang, unless it sleeps and wakes by itself. What
    moves from place to place, or gets on by other means than a core, is slow. So is what is busy at one place, in one
    long operation of native code or in a loop whose state cannot be seen, unless this place is known for a hang or
    this is the longer look.
    """
    evidence = ending.evidence
    if look.is_proven:
        return Outcome.HANG, "", Decider.STALL
    if evidence.loop is not None and evidence.loop.moves:
        words = "still moving when the clock ended: the variables of its loop were changing"
        return Outcome.SLOW, words, Decider.PROGRESS
    if look.kind is HangKind.SLOW_COMPILE:
        return Outcome.SLOW, "still compiling when the clock ended", Decider.COMPILE
    headway = evidence.headway
    if headway is not None and not headway.makes_headway:
        return _idle_outcome(headway, ending.seconds)
    if ending.moving:
        return Outcome.SLOW, "still moving when the clock ended", Decider.MOVING
    if headway is not None and (means := [_MEANS[name] for name in headway.late if name in _MEANS]):
        return Outcome.SLOW, f"still getting on when the clock ended: {', '.join(means)}", Decider.HEADWAY
    if ending.moving is False:
        return _busy_outcome(ending, look)
    if _is_busy(ending):
        return Outcome.SLOW, "busy when the clock ended; no stacks to tell whether it moved", Decider.OPEN
    if headway is not None:
        return Outcome.SLOW, f"idle for {headway.paused:.0f} s only when the clock ended", Decider.OPEN
    return Outcome.HANG, "idle until the clock ended", Decider.IDLE


def _idle_outcome(headway: Headway, seconds: float) -> tuple[Outcome, str, Decider]:
    if headway.wakes_in is not None and headway.wakes_in < (LONGER - 1) * seconds:
        return Outcome.SLOW, f"asleep when the clock ended, for {headway.wakes_in:.0f} s more", Decider.ASLEEP
    return Outcome.HANG, f"idle until the clock ended, for {headway.paused:.0f} s", Decider.IDLE


def _busy_outcome(ending: Ending, look: StoppedLook) -> tuple[Outcome, str, Decider]:
    """Judge what was busy at one place."""
    words = "busy at the same place until the clock ended"
    if look.is_longer:
        return Outcome.HANG, words, Decider.SAME_PLACE
    if look.hung_before(str(hang_signature(ending, look.place))):
        return Outcome.HANG, f"{words}, where it hung before", Decider.KNOWN_PLACE
    if look.is_brief:
        return Outcome.SLOW, f"{words}, which was a brief look", Decider.OPEN
    if not look.is_native:
        return Outcome.SLOW, f"{words}; nothing shows that its state repeats", Decider.OPEN
    return Outcome.SLOW, f"{words}, perhaps in one long operation of native code", Decider.NATIVE


def _is_busy(ending: Ending) -> bool:
    return ending.cpu_seconds > BUSY * ending.seconds if ending.busy is None else ending.busy


def hang_signature(ending: Ending, place: str = "") -> Signature:
    """Return the signature of a hang that no stacks tell of; `place` is the user's line that was busy."""
    evidence = ending.evidence
    if place and (evidence.loop or ending.moving is not None or _is_busy(ending)):
        return Signature("spins", (place,))
    if evidence.stall:
        waits = Counter(thread.wait for thread in evidence.stall)
        words = ", ".join(wait if count == 1 else f"{count} x {wait}" for wait, count in sorted(waits.items()))
        return Signature(f"{STUCK}: {words}")
    if evidence.samples and ending.moving is False:
        frames = evidence.samples[-1][:SIGNATURE_FRAMES]
        return Signature("spins", tuple(_NUMBERS.sub("N", frame) for frame in frames))
    if ending.moving:
        return Signature("spins, moving")
    return Signature("spins" if _is_busy(ending) else "idle")
