"""Write down what the kernel says of processes and their threads, in the form that `diagnosis.kernel_text` reads."""

# The supervisor must not pay for importing pathlib.
# ruff: noqa: PTH208

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

from matrix.process import kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

LOOKS = 5  # at the state of a thread: who waits for the GIL runs for some microseconds in every 5 ms
LOOK_APART = 0.012  # seconds between them
COMMAND_LENGTH = 300  # characters of a command line that are kept


def kernel_lines(pids: Iterable[int], sleep: Callable[[float], None] = time.sleep) -> list[str]:
    """Return what the kernel says of processes, in the form that `diagnosis.kernel_text` reads.

    Of several looks at each thread its commonest state is told.
    """
    pids = list(pids)
    looks: dict[tuple[int, int], list[str]] = {}
    for look in range(LOOKS):
        if look:
            sleep(LOOK_APART)
        for pid in pids:
            for tid in _threads(pid):
                if line := _thread_line(pid, tid):
                    looks.setdefault((pid, tid), []).append(line)
    lines = []
    for pid in pids:
        process = kernel.process(pid)
        lines.append(f"pid {pid}" + (f" parent={process.parent}" if process else "") + f" {_command(pid)}")
        for (of, _), seen in looks.items():
            if of == pid:
                state = Counter(line.partition("state=")[2][0] for line in seen).most_common(1)[0][0]
                lines.append(next(line for line in reversed(seen) if f"state={state}" in line))
    return lines


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
        words = kernel.read(f"/proc/{pid}/cmdline", 4096).rstrip(b"\0").replace(b"\0", b" ")
    except OSError:
        return ""
    return words.decode(errors="replace").replace("\n", "\\n").replace("\r", "\\r")[:COMMAND_LENGTH]
