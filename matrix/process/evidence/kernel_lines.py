"""Write down what the kernel says of processes and threads, as `diagnosis.collectors.kernel_text` reads it."""

# The supervisor must not pay for importing pathlib.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from matrix.process import kernel

if TYPE_CHECKING:
    from collections.abc import Iterable

LOOKS = 5  # at each thread: who waits for the GIL runs for some microseconds in every 5 ms
LOOKS_MOST = 40  # at threads of which nobody can tell yet: on a crowded machine a spin has to queue, too
LOOK_APART = 0.012  # seconds between them
BUSY = 0.05  # of a core: what runs uses more, who waits for the GIL half a percent
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
        """Take in a line and the thread's CPU seconds: a look at which it sleeps outweighs those before."""
        state = line.partition("state=")[2][:1]
        if not self.line:
            self.first = cpu
        if not (state == "R" and self.state not in {"", "R"}):
            self.line, self.state = line, state
        self.spent = cpu - self.first if cpu is not None and self.first is not None else None

    def works(self, window: float) -> bool:
        """Return whether it has used a core over a window of so many seconds."""
        return self.spent is not None and self.spent > max(BUSY * window, BUSY_LEAST)

    def is_told(self, window: float) -> bool:
        """Return whether more looks would tell nothing new."""
        return self.state != "R" or self.spent is None or self.works(window)


def kernel_lines(pids: Iterable[int]) -> list[str]:
    """Return what the kernel says of processes, in the form that `diagnosis.collectors.kernel_text` reads.

    A thread runs if it used a core over the looks, and sleeps if it was ever seen to.
    """
    pids = list(pids)
    seen: dict[tuple[int, int], ThreadRow] = {}
    began = time.monotonic()
    window = 0.0
    for look in range(LOOKS_MOST):
        window = time.monotonic() - began
        if look >= LOOKS and all(one.is_told(window) for one in seen.values()):
            break
        if look:
            time.sleep(LOOK_APART)
        for pid in pids:
            for tid in _threads(pid):
                if line := _thread_line(pid, tid):
                    seen.setdefault((pid, tid), ThreadRow()).look(line, _cpu(pid, tid))
    lines = []
    for pid in pids:
        process = kernel.process(pid)
        lines.append(f"pid {pid}" + (f" parent={process.parent}" if process else "") + f" {_command(pid)}")
        for (of, tid), one in seen.items():
            if of == pid:
                lines.append(f"{tid} state=R" if one.works(window) and one.state != "R" else one.line)
    return lines


def _cpu(pid: int, tid: int) -> float | None:
    """Return the seconds that a thread has been on a core."""
    try:
        return int(kernel.read(f"/proc/{pid}/task/{tid}/schedstat").split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def _threads(pid: int) -> list[int]:
    try:
        return sorted(map(int, os.listdir(f"/proc/{pid}/task")))
    except OSError:
        return []


def _thread_line(pid: int, tid: int) -> str:
    folder = f"/proc/{pid}/task/{tid}"
    try:
        state = kernel.read(folder + "/stat").rpartition(b")")[2].split()[0].decode()
    except (OSError, IndexError):
        return ""
    line = f"{tid} state={state}"
    for name in ("wchan", "syscall"):
        try:
            line += f" {name}={kernel.read(f'{folder}/{name}').decode().strip()}"
        except OSError:
            continue
    return line


def _command(pid: int) -> str:
    try:
        return kernel.command_line(pid)
    except OSError:
        return ""
