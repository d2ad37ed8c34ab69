"""Attempts -> outcome and signature.

A signature is what makes two failures the same one. It is taken from the exception and its frames,
never from the last line of output, which is often only a warning.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from matrix.diagnosis.exception import read_exception
from matrix.model import Outcome, Role, StoppedBy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matrix.model import Attempt
    from matrix.process.supervision import Ending

NOT_APPLICABLE = 125  # the exit code `git bisect run` gave this meaning
BUSY = 0.5  # of a core over the whole attempt: says that it worked, where its last seconds were not looked at
KERNEL_OOM_SHARE = 0.5  # of the memory limit: a SIGKILL from outside above it was the kernel's OOM killer
MESSAGE_LENGTH = 500  # characters: more is somebody's data
SIGNATURE_FRAMES = 2  # innermost ones: enough to tell two raises of one exception type apart

_FRAME = re.compile(r'^ *File "(?P<file>[^"]+)", line \d+,? in (?P<function>.+)$')
_NUMBERS = re.compile(r"0x[0-9a-f]+|\d+")
_SEVERITY = (Outcome.HANG, Outcome.CRASH, Outcome.OOM, Outcome.FAIL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What an attempt came to."""

    outcome: Outcome
    signature: str | None = None
    note: str = ""
    message: str = ""  # of the exception of a `fail`


def judge(ending: Ending, stderr: str, memory_mb: int, *, is_rerun: bool = False) -> Verdict:
    """Return the verdict on one attempt from how it ended and the end of what it wrote to stderr.

    A rerun is the longer look at what was slow: still moving at its end, it counts as a hang.
    """
    outcome, note = _outcome(ending, memory_mb)
    if is_rerun and outcome is Outcome.SLOW:
        outcome, note = Outcome.HANG, f"still {'moving' if ending.moving else 'busy'} after {ending.seconds:.0f} s"
    note = "; ".join(part for part in (note, ending.note) if part)
    raised = read_exception(stderr) if outcome is Outcome.FAIL else None
    signature = _located(raised.type, raised.place) if raised else _signature(outcome, ending, stderr)
    message = raised.words[:MESSAGE_LENGTH] if raised else ""
    return Verdict(outcome=outcome, signature=signature, note=note, message=message)


def _outcome(ending: Ending, memory_mb: int) -> tuple[Outcome, str]:
    if ending.problem:
        return Outcome.ERROR, ending.problem
    match StoppedBy(ending.stopped_by):
        case StoppedBy.EXIT:
            return _exit_outcome(ending, memory_mb)
        case StoppedBy.STALL:
            return Outcome.HANG, ""
        case StoppedBy.TIMEOUT:
            return _timeout_outcome(ending)
        case StoppedBy.MEMORY:
            return Outcome.OOM, f"passed its {memory_mb} MB"
        case StoppedBy.PROCESSES:
            return Outcome.OOM, "started more processes than it may"
        case StoppedBy.OUTPUT:
            return Outcome.ERROR, "wrote more than the disk can be asked to hold"
        case StoppedBy.INTERRUPT:
            return Outcome.ERROR, "interrupted"


def _exit_outcome(ending: Ending, memory_mb: int) -> tuple[Outcome, str]:
    if ending.signal == "SIGKILL" and ending.peak_rss_mb >= KERNEL_OOM_SHARE * memory_mb:
        return (
            Outcome.OOM,
            f"killed from outside at {ending.peak_rss_mb:.0f} MB: the kernel was out of memory",
        )
    if ending.signal is not None:
        return Outcome.CRASH, ""
    if ending.exit_code == 0:
        return Outcome.PASS, ""
    if ending.exit_code == NOT_APPLICABLE:
        return Outcome.SKIP, ""
    if ending.exit_code is None:
        return Outcome.ERROR, "its exit status was lost"
    return Outcome.FAIL, ""


def _timeout_outcome(ending: Ending) -> tuple[Outcome, str]:
    busy = _is_busy(ending)
    if ending.moving is False:
        return Outcome.HANG, "busy at the same place until the clock ended"
    if ending.moving is None and not busy:
        return Outcome.HANG, "idle until the clock ended"
    if ending.moving is None:
        return Outcome.SLOW, "busy when the clock ended; no stacks to tell whether it moved"
    return Outcome.SLOW, "still moving when the clock ended"


def _is_busy(ending: Ending) -> bool:
    return ending.cpu_seconds > BUSY * ending.seconds if ending.busy is None else ending.busy


def _signature(outcome: Outcome, ending: Ending, stderr: str) -> str | None:
    match outcome:
        case Outcome.FAIL:
            return f"exit code {ending.exit_code}"
        case Outcome.CRASH:
            return _located(ending.signal or "signal", _crash_frames(stderr))
        case Outcome.OOM:
            return ending.stopped_by if ending.stopped_by != StoppedBy.EXIT else "SIGKILL"
        case Outcome.HANG:
            return _hang_signature(ending)
        case _:
            return None


def _crash_frames(stderr: str) -> list[str]:
    """Return the frames that faulthandler wrote, innermost first."""
    _, found, report = stderr.rpartition("Current thread ")
    if not found:
        return []
    frames = []
    for line in report.splitlines()[1:]:
        frame = _FRAME.match(line)
        if frame is None:
            break
        frames.append(_frame_name(frame["file"], frame["function"]))
    return frames


def _hang_signature(ending: Ending) -> str:
    stall = ending.evidence.get("stall")
    if stall:
        waits = Counter(str(thread["wait"]) for thread in stall)
        return "stuck: " + ", ".join(wait if n == 1 else f"{n} x {wait}" for wait, n in sorted(waits.items()))
    samples = ending.evidence.get("samples")
    if samples and ending.moving is False:
        return _located("spins", [_NUMBERS.sub("N", frame) for frame in samples[-1]])
    if ending.moving:
        return "spins, moving"
    return "spins" if _is_busy(ending) else "idle"


def _located(what: str, frames: Sequence[str]) -> str:
    place = " < ".join(frames[:SIGNATURE_FRAMES])
    return f"{what} in {place}" if place else what


def _frame_name(file: str, function: str) -> str:
    return f"{function} ({PurePath(file).name})"


def passes_needed(seen: int, made: int, luck: float) -> int:
    """Return how many passes in a row are luck with at most this chance, of what failed in `seen` of `made` runs."""
    return math.ceil(math.log(luck) / math.log(1 - seen / made))


def combine(attempts: Sequence[Attempt]) -> Attempt | None:
    """Return the attempt that speaks for a cell.

    An observing one never does. A `slow` one speaks only while nothing longer decided. Of several, the most
    frequent red outcome speaks, since a pass does not take a hang back.
    """
    attempts = [attempt for attempt in attempts if attempt.role is Role.JUDGE]
    decided = [attempt for attempt in attempts if attempt.outcome is not Outcome.SLOW] or attempts
    if not decided:
        return None
    counts = Counter(attempt.outcome for attempt in decided)

    def weight(attempt: Attempt) -> tuple[bool, int, int]:
        red = attempt.outcome.is_red
        severity = -_SEVERITY.index(attempt.outcome) if red else 0
        return red, counts[attempt.outcome], severity

    return max(decided, key=weight)
