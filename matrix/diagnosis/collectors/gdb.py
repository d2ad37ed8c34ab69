"""Read what `gdb -batch -ex "thread apply all bt" -p PID` writes: native frames of every thread.

Its arguments tell who waits for whom: glibc's join waits for a futex that holds the thread's number until it ends,
`__futex_abstimed_wait_common64 (…, expected=26950, …)` below `__pthread_clockjoin_ex (threadid=140081764583104, …)`.
"""

from __future__ import annotations

import re

from matrix.diagnosis.stacks import Frame, Process, Thread, native

_THREAD = re.compile(r'^Thread \d+ \((?:Thread (?P<ident>0x[0-9a-f]+) \()?LWP (?P<tid>\d+)\)?(?: "(?P<name>.*)")?\)?:')
_FRAME = re.compile(r"^#\d+\s+(?:0x[0-9a-f]+ in )?(?P<rest>.+)$")
_LIBRARY = re.compile(r"^(?P<call>.*) from (?P<library>.+)$")
_SOURCE = re.compile(r"^(?P<call>.*) at (?P<file>.+):(?P<line>\d+)$")
_DETACHED = re.compile(r"^\[Inferior \d+ \(process (\d+)\) detached\]$", re.MULTILINE)
_EXPECTED = re.compile(r"\bexpected=(\d+)\b")
_JOIN = re.compile(r"pthread_\w*join")
_INNERMOST = 4  # frames among which glibc passes the number on


def parse(text: str, pid: int = 0) -> tuple[Process, ...]:
    """Return the process of a backtrace of all its threads."""
    stacks: list[tuple[Thread, list[str]]] = []
    for line in text.splitlines():
        if header := _THREAD.match(line):
            ident = int(header["ident"], 16) if header["ident"] else None
            stacks.append((Thread(tid=int(header["tid"]), ident=ident, name=header["name"] or ""), []))
        elif stacks and (frame := _FRAME.match(line)):
            stacks[-1][1].append(frame["rest"])
    if not stacks:
        return ()
    detached = _DETACHED.search(text)
    pid = pid or (int(detached[1]) if detached else min(thread.tid for thread, _ in stacks))
    threads = [
        thread.model_copy(update={"frames": tuple(map(_frame, calls)), "joins": _joined(calls)})
        for thread, calls in stacks
    ]
    return (Process(pid=pid, threads=tuple(threads)),)


def _frame(text: str) -> Frame:
    library = file = line = None
    if match := _SOURCE.match(text):
        text, file, line = match["call"], match["file"], int(match["line"])
    elif match := _LIBRARY.match(text):
        text, library = match["call"], match["library"]
    return native(_function(text), library=library, file=file, line=line)


def _function(call: str) -> str:
    """Return `name` of `name (arguments)`, where both may hold parentheses."""
    if not call.endswith(")"):
        return call
    depth = 0
    for position in range(len(call) - 1, -1, -1):
        depth += (call[position] == ")") - (call[position] == "(")
        if depth == 0:
            return call[:position].rstrip() or call
    return call.partition(" (")[0]  # a string among the arguments holds a parenthesis


def _joined(calls: list[str]) -> int | None:
    """Return the number of the thread whose end is waited for."""
    inner = calls[:_INNERMOST]
    if not any(_JOIN.search(call) for call in inner):
        return None
    numbers = [int(match[1]) for call in inner if (match := _EXPECTED.search(call))]
    return numbers[0] if numbers else None
