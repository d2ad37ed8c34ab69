"""Judge an attempt: how it ended and what it wrote to stderr -> outcome and signature."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from whichtorch.base.redaction import ESCAPES
from whichtorch.failures import tracebacks
from whichtorch.failures.deadline import PLAIN_LOOK, Decider, StoppedLook, hang_signature, timeout_outcome
from whichtorch.failures.failure import Signature, place_of
from whichtorch.model import Outcome, StoppedBy
from whichtorch.process.evidence.loop_watch import LOOP_SIGNAL

if TYPE_CHECKING:
    from whichtorch.process.supervision import Ending

NOT_APPLICABLE = 125  # the exit code `git bisect run` gave this meaning
KERNEL_OOM_SHARE = 0.5  # of the memory limit: where the kernel kills for want of memory below it, others took that
OWN_THREADS = 1000  # of a tree: one with as many has used up the machine's processes itself
CROWD = 2.0  # times as long as with a core for each thread: from here on the note also blames the machine
MESSAGE_LENGTH = 500  # characters: longer ones hold data

DISK_FAILED = "could not write to the disk"  # begins the note of an error that is the machine's
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded|out of shared memory")
_NO_FILES = re.compile(r"Too many open files in system|inotify.*(?:limit|Too many open files)")
# the line of source that asked for one, or the library, then the refusal: reads and locks are refused in the same words
_NO_PROCESS = re.compile(r"can't start new thread|(?:hread|fork|spawn|what\(\)).*[]:] +(?:Resource temp|Cannot alloc)")
_CHILD_KILLED = re.compile(r"SIGKILL|signal: Killed|exit ?code *:? -9\b|^Killed$|\d Killed ", re.MULTILINE)
SENT_SIGNALS = {"SIGHUP", "SIGKILL", "SIGTERM"}  # somebody sends them: no process gets one for what it does wrong
_STILL = {  # what a longer look has seen go on
    Decider.COMPILE: "compiling",
    Decider.ASLEEP: "asleep",
    Decider.MOVING: "moving",
    Decider.HEADWAY: "moving",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an attempt came to."""

    outcome: Outcome
    signature: str | None = None
    note: str = ""
    message: str = ""  # of the exception of a `fail`, or the last line that the script wrote
    decided: str = ""  # a Decider, of a hang or what is slow
    process: str = ""  # that failed first, of several: "rank 1"; "" where that is not known


def judge(ending: Ending, stderr: str, memory_mb: int, look: StoppedLook = PLAIN_LOOK, *, stdout: str = "") -> Verdict:
    """Return the verdict on one attempt from how it ended and the end of what it wrote.

    Only what it wrote to stderr decides; stdout tells what it said where it failed without an exception. Of what was
    stopped, the stacks' facts count, too. The longer look at what was slow decides: what it finds still moving counts
    as a hang.
    """
    stderr, stdout = ESCAPES.sub("", stderr), ESCAPES.sub("", stdout)
    outcome, note, decider = _outcome(ending, memory_mb, look)
    first = tracebacks.first_failure(stderr) if outcome is Outcome.FAIL else tracebacks.FirstFailure(text=stderr)
    ending = replace(ending, exit_code=first.exit_code or ending.exit_code, signal=first.signal or ending.signal)
    if first.signal:
        outcome, note, decider = _outcome(ending, memory_mb, look)
    if look.is_longer and decider not in {None, Decider.STALL, Decider.REPEATS, Decider.PROGRESS}:
        assert decider is not None
        outcome, note, decider = _longer_outcome(ending, look, outcome, note, decider)
    headway = ending.evidence.headway
    if outcome is Outcome.SLOW and decider is not Decider.CROWDED and headway and headway.stretch >= CROWD:
        note += f"; waiting for cores made it take {headway.stretch:.0f} times as long"
        decider = decider if look.is_again or look.is_longer else Decider.CROWDED
    note = "; ".join(filter(None, (note, ending.note, ending.machine)))
    raised = tracebacks.read_exception(first.text) if outcome is Outcome.FAIL else None
    words = raised.first_line if raised else tracebacks.last_words(first.text or first.around, stdout)
    said = words if outcome is Outcome.FAIL else ""
    may_be_machines = outcome.is_red and ending.stopped_by not in {StoppedBy.MEMORY, StoppedBy.PROCESSES}
    if may_be_machines and (why := _excuse(ending, memory_mb, look) or _shortage(ending, stderr, said)):
        return Verdict(outcome=Outcome.ERROR, note=why[:MESSAGE_LENGTH])
    signature = Signature.of(raised) if raised else _signature(outcome, ending, first, look.place)
    return Verdict(
        outcome=outcome,
        signature=str(signature) if signature else None,
        note=note,
        message=said[:MESSAGE_LENGTH],
        decided=decider or "",
        process=first.process,
    )


def _outcome(ending: Ending, memory_mb: int, look: StoppedLook) -> tuple[Outcome, str, Decider | None]:
    if ending.problem:
        return Outcome.ERROR, ending.problem, None
    reason = StoppedBy(ending.stopped_by)
    if reason is StoppedBy.EXIT:
        return *_exit_outcome(ending), None
    if reason is StoppedBy.TIMEOUT:
        return timeout_outcome(ending, look)
    if reason is StoppedBy.STALL:
        loop = ending.evidence.loop
        return Outcome.HANG, "", Decider.REPEATS if loop and loop.repeats else Decider.STALL
    outcome, note = {
        StoppedBy.MEMORY: (Outcome.OOM, f"passed its {memory_mb} MB"),
        StoppedBy.PROCESSES: (Outcome.OOM, "started more processes than it may"),
        StoppedBy.OUTPUT: (Outcome.ERROR, "wrote more than the disk can be asked to hold"),
        StoppedBy.INTERRUPT: (Outcome.ERROR, "interrupted"),
    }[reason]
    return outcome, note, None


def _longer_outcome(
    ending: Ending, look: StoppedLook, outcome: Outcome, note: str, decider: Decider
) -> tuple[Outcome, str, Decider]:
    """Return what a longer look comes to: a hang, unless it gave less than it was to give."""
    if outcome is Outcome.SLOW:
        note = f"still {_STILL.get(decider, 'busy')} after {ending.seconds:.0f} s"
    if decider is Decider.IDLE or look.is_enough(ending):
        return Outcome.HANG, note, Decider.LONGER_LOOK
    if decider is Decider.ASLEEP:
        return Outcome.SLOW, note, decider
    return Outcome.SLOW, f"{note}, most of which it waited for a core", Decider.CROWDED


def _excuse(ending: Ending, memory_mb: int, look: StoppedLook) -> str:
    """Return what was done to an attempt from outside, so that how it ended says nothing of it; "" for nothing."""
    if ending.oom_kills and ending.peak_rss_mb < KERNEL_OOM_SHARE * memory_mb:
        return f"the machine ran out of memory; this test used {ending.peak_rss_mb:,.0f} MB of its {memory_mb:,}"
    if ending.signal in SENT_SIGNALS - {*ending.sent} and not ending.oom_kills:
        return f"not known who ended it by {ending.signal}: no Python code of this test was seen to do so"
    return f"not known who ended a process of it by {look.killed}" if look.killed else ending.machine


def _shortage(ending: Ending, stderr: str, said: str) -> str:
    """Return what the machine had no more of, by the words of an attempt that did not use it up; "" for nothing."""
    frames = [(frame, each.message) for each in tracebacks.read_chain(stderr) for frame in each.frames[:1]]
    text = "\n".join([said, *(f"{frame.source}: {message}" for frame, message in frames)])
    if ending.signal:
        text = stderr.partition("Fatal Python error")[0][-MESSAGE_LENGTH:]
    for words, pattern, is_its_own in (
        (DISK_FAILED, _NO_ROOM, False),
        ("the machine has no more files", _NO_FILES, False),
        ("the machine has no more processes", _NO_PROCESS, ending.peak_threads >= OWN_THREADS),
        ("not known who killed a process of it", _CHILD_KILLED, ending.oom_kills or "SIGKILL" in ending.sent),
    ):
        if not is_its_own and (found := pattern.search(text)):
            return f"{words}: {said or found[0]}"
    return ""


def _exit_outcome(ending: Ending) -> tuple[Outcome, str]:
    if ending.signal == "SIGKILL" and ending.oom_kills:
        return Outcome.OOM, f"killed by the kernel, which was out of memory, at {ending.peak_rss_mb:,.0f} MB"
    if ending.signal == f"SIG{LOOP_SIGNAL}":
        return Outcome.ERROR, "ended by the signal that asks for its loop, while it ended or began another program"
    if ending.signal is not None:
        return Outcome.CRASH, ""
    if ending.exit_code is None:
        return Outcome.ERROR, "its exit status was lost"
    return {0: Outcome.PASS, NOT_APPLICABLE: Outcome.SKIP}.get(ending.exit_code, Outcome.FAIL), ""


def _signature(outcome: Outcome, ending: Ending, first: tracebacks.FirstFailure, place: str) -> Signature | None:
    callers = [frame for frame in tracebacks.read_frames(first.around) if frame.is_users and "/bin/" not in frame.file]
    if outcome is Outcome.FAIL:
        return Signature(f"exit code {ending.exit_code}", place_of(callers))
    if outcome is Outcome.CRASH:
        return Signature(ending.signal or "signal", place_of(tracebacks.read_crash(first.text) or callers))
    if outcome is Outcome.OOM:
        return Signature(ending.stopped_by if ending.stopped_by != StoppedBy.EXIT else "SIGKILL")
    return hang_signature(ending, place) if outcome is Outcome.HANG else None


def passes_needed(seen: int, made: int, luck: float) -> int:
    """Return the passes needed to reject luck at this level, after a failure in `seen` of `made` runs."""
    return math.ceil(math.log(luck) / math.log(1 - seen / made))
