"""Who has gone that could have ended a wait: children that failed, threads that an exception has ended."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from whichtorch.matrix.diagnosis.stacks import number_on_host

if TYPE_CHECKING:
    from collections.abc import Iterable

    from whichtorch.matrix.diagnosis.stacks import Process

_LONGEST_MESSAGE = 80  # characters of an exception that a thread ended with
_ENDED_THREAD = re.compile(r"^Exception in thread (?P<name>.+?)(?: \([\w<>.]+\))?:$", re.MULTILINE)
_ENDED_PROCESS = re.compile(r"^Process (?P<name>[\w:.-]+):$", re.MULTILINE)
_LAST_LINE = re.compile(
    r"^(?P<type>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Empty|Full))(?:: (?P<words>.*))?$"
)


def ended_children(processes: Iterable[Process]) -> list[str]:
    """Return which children have failed or were killed, of those that nobody has waited for; many alike as one."""
    endings: dict[str, list[int]] = {}
    for process in processes:
        if process.ended and process.ended != "exit code 0":
            endings.setdefault(process.ended, []).append(number_on_host(process.pid))
    words = []
    for ended, pids in endings.items():
        is_killed = ended.startswith("SIG")
        children, verb = (
            (f"child {pids[0]}", "was" if is_killed else "has")
            if len(pids) == 1
            else (f"{len(pids)} children", "were" if is_killed else "have")
        )
        words.append(f"{children} {verb} killed by {ended}" if is_killed else f"{children} {verb} ended ({ended})")
    return words


def ended_with_exception(stderr: str) -> list[str]:
    """Return which threads and processes have ended with an exception, as they wrote it to stderr."""
    words = []
    lines = stderr.splitlines()
    for number, line in enumerate(lines):
        match = _ENDED_THREAD.match(line) or _ENDED_PROCESS.match(line)
        if not match:
            continue
        kind = "thread" if line.startswith("Exception") else "process"
        following = (_LAST_LINE.match(text) for text in lines[number + 1 :])
        if last := next(filter(None, following), None):
            message = (last["words"] or "")[:_LONGEST_MESSAGE]
            words.append(
                f'{kind} "{match["name"]}" has ended with {last["type"]}' + (f": {message}" if message else "")
            )
    return words
