"""What was seen of a command that `whichtorch run` has watched."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, TypeAdapter

from whichtorch.hangs import stack_folder
from whichtorch.hangs.busy_loop import busy_loop
from whichtorch.matrix.test_session import test_events
from whichtorch.model import Diagnosis, Model, Outcome, ThreadWait
from whichtorch.process import kernel
from whichtorch.process.evidence import capture
from whichtorch.process.evidence.stall import LIKELY
from whichtorch.process.evidence.waiting import HangKind
from whichtorch.process.supervision import LoopAnswers

if TYPE_CHECKING:
    from whichtorch.watch.watched_command import CommandEnd, Standstill

SCHEMA = 1
ENDED_WELL = "it went on after all, and ended well"
NO_STACK = "no stack could be read"
TESTS_NAMED = 3  # of those that run side by side
_WAITS = TypeAdapter(tuple[ThreadWait, ...])
_ANSWERS = TypeAdapter(LoopAnswers)


class SeenHang(Model):
    """What the stacks of a command showed when it was stuck, or when its time was over."""

    is_stuck: bool  # False: its time was over, and it may have been only slow
    is_likely: bool = False  # nothing moved for a while, and nobody is known who could end it from outside
    after: float  # seconds
    tests: tuple[str, ...] = ()  # ids of pytest's tests that ran
    sentence: str  # who waits for what, on which line; "" where no stack could be read
    diagnosis: Diagnosis | None = None
    notes: tuple[str, ...] = ()  # what could not be read, and why

    @property
    def headline(self) -> str:
        """What happened, in one line."""
        what = "HANG" if self.is_stuck else f"probably stuck for {LIKELY:.0f} s," if self.is_likely else "not done"
        return f"{what} after {self.after:.0f} s: {self.sentence or NO_STACK}"


class WatchedRun(Model):
    """How a watched command ended; what `run --json` writes."""

    schema_: int = Field(default=SCHEMA, alias="schema")
    command: tuple[str, ...]
    outcome: Outcome
    exit_code: int  # of `whichtorch run`: that of the command, 128 and its signal's number, or 124
    signal: str | None = None  # that ended the command
    seconds: float
    hang: SeenHang | None = None  # the last that was seen
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, command: tuple[str, ...], end: CommandEnd, hang: SeenHang | None) -> WatchedRun:
        """Return how a command ended. What hung and ended well afterwards did not hang for good: it is a pass."""
        signal = kernel.signal_of(end.code)
        if end.code == 0:
            outcome = Outcome.PASS
        elif hang is not None and not (hang.is_likely and end.code is not None):
            outcome = Outcome.HANG if hang.is_stuck else Outcome.SLOW
        else:
            outcome = Outcome.CRASH if signal else Outcome.FAIL
        return cls(
            command=command,
            outcome=outcome,
            exit_code=end.exit_code,
            signal=signal,
            seconds=round(end.seconds, 1),
            hang=hang,
            notes=(ENDED_WELL,) if hang and end.code == 0 else (),
        )


def running_tests(folder: Path, pids: Collection[int]) -> dict[int, str]:
    """Return the ids of the tests that these processes have begun and not ended, by process; "" of an idle pytest."""
    running = {event.pid: event.id if event.event == "start" else "" for event in test_events(folder)}
    return {pid: test for pid, test in running.items() if pid in pids}


def read_hang(seen: Standstill, folder: Path) -> tuple[SeenHang | None, list[str]]:
    """Take the stacks of a command whose processes write to `folder`; return what they show, and lines for people.

    It is None where a hang is only likely and no ranks wait for one that looks for something again and again.
    """
    stacks = Path(tempfile.mkdtemp(dir=folder))  # no stacks of a hang before this one
    of_pytest = running_tests(folder, seen.pids)
    tests = tuple(filter(None, dict.fromkeys(of_pytest.values())))
    # where a test runs, a controller of xdist and its other workers only wait for it
    idle = {pid for pid, test in of_pytest.items() if tests and not test}
    pids = [pid for pid in seen.pids if pid not in idle]
    collection = capture.collect(pids, stacks, capture.find_tools(), told=folder)
    shown, loop, notes = None, None, collection.notes
    waits = [wait for wait in seen.waits if wait["pid"] not in idle]
    try:
        shown = stack_folder.diagnose_folder(stacks, stall=_WAITS.validate_python(waits))
        loop = None if seen.waits else busy_loop(_ANSWERS.validate_python(seen.loops), seen.in_test)
    except Exception as error:  # noqa: BLE001 - a command goes on, or is stopped, without a diagnosis
        notes.append(f"diagnosis failed: {error!r}")
    if seen.is_likely and not (shown and shown[0].kind is HangKind.COLLECTIVE):
        return None, []
    is_proven = shown is not None and shown[0].proven
    sentence = loop.words if loop and not is_proven else f"{shown[0].kind}: {shown[0].summary}" if shown else ""
    if tests:
        sentence = f"in {' and '.join(tests[:TESTS_NAMED])}: {sentence or NO_STACK}"
    hang = SeenHang(
        is_stuck=seen.is_stuck or (is_proven and not seen.is_likely),
        is_likely=seen.is_likely,
        after=round(seen.elapsed, 1),
        tests=tests,
        sentence=sentence,
        diagnosis=stack_folder.stored(*shown, seconds=0) if shown else None,
        notes=tuple(notes),
    )
    return hang, [*stack_folder.diagnosis_lines(*shown)][1:] if shown else []
