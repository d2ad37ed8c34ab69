"""Write down what the kernel says of processes and threads, as `diagnosis.collectors.kernel_text` reads it."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from matrix.process import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

LOOKS = 5  # at each thread: a waiter for the GIL runs for some microseconds in every 5 ms
LOOKS_MOST = 40  # while a thread's row is not settled: on a crowded machine a spin has to queue, too
LOOK_EVERY = 0.012  # seconds
BUSY = 0.05  # of a core: a running thread uses more, a waiter for the GIL half a percent
BUSY_LEAST = 0.003  # seconds of CPU, below which it may be chance


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
        return self.spent is not None and self.spent > max(BUSY * window, BUSY_LEAST)

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
        if look >= LOOKS and all(row.is_settled(window) for row in rows.values()):
            break
        if look:
            time.sleep(LOOK_EVERY)
        for pid in pids:
            for tid in kernel.thread_ids(pid):
                if line := _thread_line(pid, tid):
                    rows.setdefault((pid, tid), ThreadRow()).look(line, _cpu(pid, tid))
    lines = []
    for pid in pids:
        process = kernel.process(pid)
        command = ""
        with contextlib.suppress(OSError):
            command = kernel.command_line(pid)
        lines.append(f"pid {pid}" + (f" parent={process.parent}" if process else "") + f" {command}")
        for (owner, tid), row in rows.items():
            if owner == pid:
                lines.append(f"{tid} state=R" if row.works(window) and row.state != "R" else row.line)
    return lines


def _cpu(pid: int, tid: int) -> float | None:
    """Return the seconds that a thread has been on a core."""
    try:
        return int(kernel.read(f"/proc/{pid}/task/{tid}/schedstat").split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _thread_line(pid: int, tid: int) -> str:
    folder = f"/proc/{pid}/task/{tid}"
    try:
        state = kernel.read(folder + "/stat").rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""
    line = f"{tid} state={state}"
    for name in ("wchan", "syscall"):
        with contextlib.suppress(OSError):
            line += f" {name}={kernel.read(f'{folder}/{name}').decode().strip()}"
    return line
