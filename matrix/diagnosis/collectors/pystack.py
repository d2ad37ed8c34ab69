"""Read what `pystack remote --native` writes: frames outermost first, and who has or wants the GIL.

    Traceback for thread 26950 (python) [Waiting for the GIL] (most recent call last):
        (C) File "Python/ceval_gil.h", line 231, in take_gil (…/libpython3.11.so.1.0)
        (Python) File "…/run_mm.py", line 5, in <module>
            print(m.run(a, b))

A source line, of one or more lines, follows a Python frame. The status may name several things, and is empty for most.
"""

from __future__ import annotations

import re

from matrix.diagnosis.stacks import Frame, Process, Thread, native, python

_THREAD = re.compile(r"^Traceback for thread (\d+) (?:\((?P<name>.*?)\) )?\[(?P<status>[^\]]*)\].*:\s*$")
_FRAME = re.compile(r'^ {4}\((?P<language>C|Python)\) File "(?P<file>.*?)", line (?P<line>\d+), in (?P<rest>.*)$')
_NATIVE = re.compile(r"^(?P<function>.*?)(?P<inlined> \(inlined\))? \((?P<library>[^()]*)\)$")
_NOWHERE = "???"
_MAIN = {"Py_BytesMain", "_start", "__libc_start_main"}


def parse(text: str, pid: int = 0) -> tuple[Process, ...]:
    """Return the process of a traceback; the text does not name it, but its main thread starts the program."""
    stacks: list[tuple[Thread, list[Frame]]] = []
    for line in text.splitlines():
        if header := _THREAD.match(line):
            stacks.append((_thread(header), []))
        elif stacks and (frame := _FRAME.match(line)):
            stacks[-1][1].append(_frame(frame))
    threads = tuple(thread.model_copy(update={"frames": tuple(frames[::-1])}) for thread, frames in stacks)
    if not threads:
        return ()
    main = (thread.tid for thread in threads if any(frame.function in _MAIN for frame in thread.frames))
    return (Process(pid=pid or next(main, min(thread.tid for thread in threads)), threads=threads),)


def _thread(header: re.Match[str]) -> Thread:
    status = header["status"]
    # An empty status of one thread is a "no" only where another one is marked; `has_gil` stays unknown here.
    return Thread(
        tid=int(header[1]),
        name=header["name"] or "",
        has_gil=True if "Has the GIL" in status else None,
        wants_gil=True if "Waiting for the GIL" in status else None,
    )


def _frame(match: re.Match[str]) -> Frame:
    file = match["file"] if match["file"] != _NOWHERE else None
    line = int(match["line"]) or None
    if match["language"] == "Python":
        return python(match["rest"], file, line)
    parts = _NATIVE.match(match["rest"])
    if parts is None:
        return native(match["rest"], file=file, line=line)
    library = parts["library"] or None
    return native(parts["function"], library=library, file=file if file != library else None, line=line)
