"""Sample busy processes: tell progress from spinning in one place, and running threads from waiting ones.

Some samples are spread over the attempt, the others over its last seconds; few attempts last long enough to be sampled
at all. Each sample is a py-spy of its own, which reads without stopping the process. None of them can hold up the
clock for longer than DELAY.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import TYPE_CHECKING, Any

from whichtorch.process import kernel
from whichtorch.process.evidence.headway import BUSY, Totals
from whichtorch.process.spawning import Helper

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


SAMPLES = 4  # dumps at the end; two would do to see that something moves
SPARSE = (0.4, 0.6, 0.8)  # of the attempt: when samples are taken before
SPARSE_LEAST = 10.0  # seconds of a timeout below which the end is most of the attempt
LATE = 0.25  # of the attempt: if the place in the code changes in this last part, that is headway
SPAN = 3.0  # seconds before the deadline over which they are spread
LEAD = 1.0  # seconds before that, over which the busy process is found
LOOK = 0.1  # seconds between two looks while sampling
BUSY_THREAD = 0.2  # of the busiest thread's CPU time
PATIENCE = 2.0  # seconds for one dump: the first reads the symbols of the interpreter
DELAY = 1.5  # seconds past the deadline for which a dump under way is waited for
DEPTH = 5  # innermost frames compared
SHARE_OF_SHORT = 0.5  # of a short timeout that sampling may span
LOOKS = 5  # at each thread's row: a waiter for the GIL runs for some microseconds in every 5 ms
LOOKS_MOST = 40  # while a thread's row is not settled: on a crowded machine a spin has to queue, too
LOOK_EVERY = 0.012  # seconds between them
LOOKING = 1.5  # seconds after which a large tree is not looked at again
WORK = 0.05  # of a core: a running thread uses more, a waiter for the GIL half a percent
WORK_LEAST = 0.003  # seconds of CPU: less may be chance


def span(timeout: float) -> float:
    """Return over how many seconds before the deadline the last samples are taken."""
    return min(SPAN, timeout * SHARE_OF_SHORT)


def schedule(deadline: float, timeout: float) -> list[float]:
    """Return when samples are taken; the last one leaves time for itself."""
    sparse = [deadline - timeout * (1 - share) for share in SPARSE] if timeout >= SPARSE_LEAST else []
    return sparse + [deadline - span(timeout) * left / SAMPLES for left in range(SAMPLES, 0, -1)]


class Sampler:
    """Samples of one task; `look` is called again and again and never waits."""

    def __init__(self, py_spy: str, helpers: dict[int, int | None]) -> None:
        self._py_spy = py_spy
        self._deadline = self._late = 0.0  # seconds, monotonic
        self.due: list[float] = []  # when samples are still to be taken
        self._sparse_taken = 0  # samples
        self._helpers = helpers  # the supervisor's children that are not of the tree: pid -> status once reaped
        self._last_look = 0.0
        self._totals: dict[int, Totals] = {}  # of each process at the last look
        self._thread_cpu: dict[int, float] = {}  # CPU seconds of the threads of the process last sampled
        self._dump: Helper | None = None  # under way
        self._target = 0  # the process that it reads
        self._places: dict[int, list[tuple[float, tuple[tuple[str, str], ...]]]] = {}  # of each process, and when
        self._was_busy: list[tuple[float, bool]] = []  # when it was looked at, and what was seen
        self._failures: list[str] = []
        self.frames: list[list[str]] = []  # of each sample, innermost first: "function (file:line)"

    def aim(self, now: float, deadline: float, timeout: float) -> None:
        """Set the deadline, or move it: what was sampled stays, the end's samples move, none is taken twice."""
        if deadline == self._deadline:
            return
        self._deadline = deadline
        self._late = deadline - max(LATE * timeout, span(timeout))
        due = schedule(deadline, timeout)
        sparse = [when for when in due[self._sparse_taken : -SAMPLES] if when > now]
        self.due = sparse + due[-SAMPLES:]

    def is_done(self, now: float) -> bool:
        """Return whether no dump is under way that is worth waiting for."""
        if self._dump and self._dump.is_running and now < self._deadline + DELAY:
            return False
        self._collect()
        return True

    def look(self, now: float, members: Sequence[kernel.KernelProcess]) -> None:
        """Collect a dump that has ended, start one that is due."""
        if self._dump and not self._dump.is_running:
            self._collect()
        if self._last_look and (self._dump or not self.due or now < self.due[0]):
            return
        totals = {member.pid: Totals(member) for member in members if member.is_alive}
        grown = {pid: total.since(self._totals.get(pid, total)).demand for pid, total in totals.items()}
        last_look, self._last_look, self._totals = self._last_look, now, totals
        if not last_look:
            return
        self._sparse_taken += len(self.due) > SAMPLES
        self.due.pop(0)
        busy = sum(grown.values()) >= BUSY * (now - last_look)
        self._was_busy.append((now, busy))
        if not grown or not busy:
            return
        self._target = max(grown, key=lambda pid: grown[pid])
        self._thread_cpu = self._thread_cpu or _thread_cpu(self._target)
        argv = (self._py_spy, "dump", "--json", "--nonblocking", "--pid", str(self._target))
        try:
            self._dump = Helper(argv, PATIENCE, self._helpers)
        except OSError as error:
            self._failures.append(f"py-spy could not be started: {error}")

    def _collect(self) -> None:
        """Take over the dump under way, which has ended or takes too long."""
        if self._dump is None:
            return
        status, text = self._dump.finish()
        started, self._dump = self._dump.started, None
        if status is None:
            self._failures.append("py-spy took too long")
            return
        threads = None
        with contextlib.suppress(ValueError):
            threads = json.loads(text[text.index("[") :]) if status == 0 else None
        if threads is not None:
            self._take(started, threads)
        else:
            reason = text.strip().partition("\n")[0].removeprefix("Error: ")
            self._failures.append(f"py-spy could not read process {self._target}: {reason or status}")

    def _take(self, started: float, threads: list[dict[str, Any]]) -> None:
        """Keep the innermost Python frames of the busy threads."""
        before, self._thread_cpu = self._thread_cpu, _thread_cpu(self._target)
        spent = {tid: seconds - before.get(tid, 0.0) for tid, seconds in self._thread_cpu.items()}
        most = max(spent.values(), default=0.0)
        busy = {tid for tid, seconds in spent.items() if most and seconds >= most * BUSY_THREAD}
        # Where only threads without Python work (a pool in native code), the threads that wait for them tell.
        chosen = [thread for thread in threads if thread.get("os_thread_id") in busy and thread["frames"]] or threads
        frames = [frame for thread in chosen for frame in thread["frames"][:DEPTH]]
        if not frames:
            self._failures.append(f"process {self._target} runs no Python")
            return
        self._places.setdefault(self._target, []).append((started, innermost_functions(frames)))
        self.frames.append(
            [
                f"{frame['name']} ({frame.get('short_filename') or frame['filename']}:{frame['line']})"
                for frame in frames[:DEPTH]
            ]
        )

    @property
    def busy(self) -> bool | None:
        """True where the tree used or queued for a core in the attempt's end, None where it was not looked at then."""
        late = [busy for when, busy in self._was_busy if when >= self._late]
        return any(late) if late else None

    @property
    def moving(self) -> bool | None:
        """True where the late samples of a process differ, None where there is no process of which two were taken."""
        late = [[place for when, place in places if when >= self._late] for places in self._places.values()]
        known = {is_moving(places) for places in late} - {None}
        return any(known) if known else None

    @property
    def note(self) -> str:
        """Why it is not known whether the process moves."""
        return self._failures[0] if self.moving is None and self._failures else ""


def is_moving(signatures: Sequence[object]) -> bool | None:
    """Return whether innermost frames changed between samples, None where there are fewer than two."""
    return len(set(signatures)) > 1 if len(signatures) > 1 else None


def innermost_functions(frames: Sequence[dict[str, Any]]) -> tuple[tuple[str, str], ...]:
    """Reduce frames to function and file: a loop that goes round within one function is on the spot."""
    return tuple((frame["name"], frame["filename"]) for frame in frames)


def _thread_cpu(pid: int) -> dict[int, float]:
    return {thread.pid: thread.cpu for thread in kernel.threads(pid)}


class ThreadRow:
    """One thread over several looks."""

    __slots__ = ("first", "line", "spent", "state")

    def __init__(self) -> None:
        self.line = ""  # of the look that counts
        self.state = ""
        self.first: float | None = None  # seconds of CPU at the first look; None where the kernel does not count them
        self.spent: float | None = None  # since then

    def look(self, line: str, cpu: float | None) -> None:
        """Take in a line and the thread's CPU seconds; a look at which it sleeps outweighs those before."""
        state = line.partition("state=")[2][:1]
        if not self.line:
            self.first = cpu
        if state != "R" or self.state in {"", "R"}:
            self.line, self.state = line, state
        self.spent = cpu - self.first if cpu is not None and self.first is not None else None

    def works(self, window: float) -> bool:
        """Return whether the thread has used a core over a window of so many seconds."""
        return self.spent is not None and self.spent > max(WORK * window, WORK_LEAST)

    def is_settled(self, window: float) -> bool:
        """Return whether more looks would change nothing."""
        return self.state != "R" or self.spent is None or self.works(window)


def kernel_lines(pids: Iterable[int]) -> list[str]:
    """Return the lines of processes and their threads.

    A thread that used a core over the looks is running; any other that slept at one look is sleeping.
    """
    pids = list(pids)
    rows: dict[tuple[int, int], ThreadRow] = {}
    began = time.monotonic()
    window = 0.0
    for look in range(LOOKS_MOST):
        window = time.monotonic() - began
        if window > LOOKING or (look >= LOOKS and all(row.is_settled(window) for row in rows.values())):
            break
        if look:
            time.sleep(LOOK_EVERY)
        for pid in pids:
            for tid in kernel.thread_ids(pid):
                if line := _thread_line(pid, tid):
                    used, _ = kernel.core_time(pid, tid) or (None, 0.0)
                    rows.setdefault((pid, tid), ThreadRow()).look(line, used)
    lines = []
    for pid in pids:
        process = kernel.process(pid)
        parent = f" parent={process.parent}" if process else ""
        lines.append(f"pid {pid}{parent} {kernel.command_line(pid)}")
        for (owner, tid), row in rows.items():
            if owner == pid:
                lines.append(f"{tid} state=R" if row.works(window) and row.state != "R" else row.line)
    return lines


def _thread_line(pid: int, tid: int) -> str:
    thread = kernel.process(pid, tid)
    if thread is None:
        return ""
    line = f"{tid} state={thread.state}"
    for name in ("wchan", "syscall"):
        with contextlib.suppress(OSError):
            line += f" {name}={kernel.read(f'/proc/{pid}/task/{tid}/{name}').decode().strip()}"
    return line


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
