"""Read what faulthandler writes into a program's stderr: Python frames of every thread, innermost first.

It names threads by pthread_self(), and no processes. Other output of the program is passed over. Since Python 3.14 a
thread has its name in brackets, and a C stack may follow.
"""

from __future__ import annotations

import re

from matrix.diagnosis.stacks import Frame, Process, Thread, python

_THREAD = re.compile(
    r"^(?:Current thread|Thread) 0x(?P<ident>[0-9a-f]+)(?: \[(?P<name>.*)\])? \(most recent call first\):"
)
_STACK = re.compile(r"^Stack \(most recent call first\):")  # of one thread, which is not named
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.+)$')


def parse(text: str, pid: int = 0) -> tuple[Process, ...]:
    """Return the process of the last dump in `text`, which may hold anything around it."""
    stacks: dict[int, tuple[Thread, list[Frame]]] = {}
    frames: list[Frame] | None = None
    for line in text.splitlines():
        if header := _THREAD.match(line):
            ident = int(header["ident"], 16)
            frames = []
            stacks.pop(ident, None)  # of an earlier dump
            stacks[ident] = Thread(ident=ident, name=header["name"] or ""), frames
        elif _STACK.match(line):
            frames = []
            stacks[0] = Thread(), frames
        elif frames is not None and (frame := _FRAME.match(line)):
            number = int(frame["line"]) if frame["line"].isdigit() else None
            frames.append(python(frame["function"], frame["file"], number))
        elif not line.startswith("  "):
            frames = None
    threads = tuple(thread.model_copy(update={"frames": tuple(frames)}) for thread, frames in stacks.values())
    return (Process(pid=pid, threads=threads),) if threads else ()
