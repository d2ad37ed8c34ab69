"""Ask a busy process again and again where its main thread is, and whether its loop comes back to the same state.

The process answers by itself, between two instructions of its script: `inside/startup/loop_state.py`. A
loop that comes back to the same place in the same state, with nothing else in its tree that could end it, never ends.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from whichtorch.process import kernel
from whichtorch.process.evidence.headway import BUSY
from whichtorch.process.evidence.snapshots import CALLS

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOP_SIGNAL = 58  # what whichtorch/inside/startup/sitecustomize.py registers
FIRST = 3.0  # seconds after the start: most scripts import torch until then
EVERY = 0.6  # seconds between two questions, at first
SLOWER = 0.05  # of the time so far: later questions are rarer
ANSWERS_SHARE = 0.05  # of a process's time that its answers may take
LEAST_BUSY = 0.1 * BUSY * EVERY  # seconds of CPU time since the last look: with less, a process is not asked
RUNNING = "R"  # state of a main thread that has a core or waits for one
SHOWN = 3  # times that the same state must be seen at the same place
SPAN = 1.5  # seconds that these must be apart: a process that stands still answers late, not twice
KEPT = 64  # answers that are kept, spread over the attempt


class LoopWatch:
    """The answers of one task."""

    def __init__(self, folder: str, started: float) -> None:
        self._folder, self._started = folder, started
        self._next = started + FIRST
        self._asked: tuple[int, float] | None = None  # process, and when
        self._cpu: dict[int, float] = {}  # seconds of each process at the last look
        self._read: dict[int, int] = defaultdict(int)  # bytes of each process's answers
        self._seen: dict[tuple[int, int, int], list[float]] = defaultdict(list)  # when each state was at each place
        self._answers: list[dict[str, Any]] = []
        self.repeats = False

    def restart(self, now: float) -> None:
        """Forget what was seen: something else runs now."""
        self._started, self.repeats = now, False
        self._seen.clear()
        self._answers.clear()

    def look(self, now: float, members: Sequence[kernel.KernelProcess]) -> bool:
        """Take in an answer, ask the next question; return whether the state of the loop repeats."""
        if now < self._next:
            return False
        self._next = now + max(EVERY, SLOWER * (now - self._started))
        alive = [member for member in members if member.is_alive]
        self._take(now, is_alone=len(alive) == 1)
        grown = {member.pid: member.cpu - self._cpu.get(member.pid, member.cpu) for member in alive}
        self._cpu = {member.pid: member.cpu for member in alive}
        busiest = max(alive, key=lambda member: grown[member.pid], default=None)
        if busiest is None or self._asked is not None or grown[busiest.pid] <= LEAST_BUSY:
            return self.repeats
        # the signal would disturb a thread that waits, and show nothing
        if busiest.state == RUNNING and kernel.catches(busiest.pid, LOOP_SIGNAL):
            self._asked = (busiest.pid, now)
            with suppress(OSError):  # what it has written unasked, as when it was late, is no answer
                self._read[busiest.pid] = os.stat(os.path.join(self._folder, f"{busiest.pid}.loop.jsonl")).st_size
            kernel.send(busiest.pid, LOOP_SIGNAL)
        return self.repeats

    def _take(self, now: float, *, is_alone: bool) -> None:
        """Take in the answer to the last question; a process in native code answers once it returns from there."""
        if self._asked is None:
            return
        pid, asked = self._asked
        if not kernel.catches(pid, LOOP_SIGNAL):
            self._asked = None
            return
        try:
            with open(os.path.join(self._folder, f"{pid}.loop.jsonl"), "rb") as file:
                file.seek(self._read[pid])
                line = file.readline()
        except OSError:
            return
        if not line.endswith(b"\n"):
            return
        self._read[pid] += len(line)
        self._asked = None
        is_alone = is_alone and not _has_waiting_thread(pid)
        answer = json.loads(line)
        self._next = max(self._next, now + answer.get("seconds", 0) / ANSWERS_SHARE)
        self._answers.append({"after": round(asked - self._started, 1), "frames": answer["frames"]})
        self._answers[-1]["hidden"] = answer["hidden"] if is_alone else "other processes, or threads of C code, run"
        if len(self._answers) > KEPT:
            del self._answers[1::2]
        if is_alone and answer["state"] is not None:
            times = self._seen[pid, answer["place"], answer["state"]]
            times.append(now)
            self.repeats = len(times) >= SHOWN and times[-1] - times[0] >= SPAN

    @property
    def evidence(self) -> dict[str, Any]:
        """What was seen."""
        return {"repeats": self.repeats, "answers": self._answers}


def _has_waiting_thread(pid: int) -> bool:
    """Return whether a thread beside the main one is in a system call that is no futex: then, it may call Python."""
    with suppress(OSError):
        calls = [call for tid in kernel.thread_ids(pid)[1:] for call in kernel.system_call(pid, tid)[:1]]
        return any(CALLS.get(call) != "futex" for call in calls)
    return True
