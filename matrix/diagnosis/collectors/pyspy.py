"""Read what `py-spy dump --native --json` writes: one process per document, without its command line.

It shows who has the GIL, of idle threads too (measured: the holder in a GIL cycle), but not who waits for it.
"""

from __future__ import annotations

import json
from typing import Any

from matrix.diagnosis.stacks import Frame, Process, Thread, looks_native, native, python


def parse(text: str, _pid: int = 0) -> tuple[Process, ...]:
    """Return the processes of a list of threads, each with its pid; what cannot be read is left out."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    threads: dict[int, list[Thread]] = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("pid"), int):
            threads.setdefault(row["pid"], []).append(_thread(row))
    return tuple(Process(pid=pid, threads=tuple(members)) for pid, members in threads.items())


def _thread(row: dict[str, Any]) -> Thread:
    frames = row.get("frames")
    return Thread(
        tid=_number(row.get("os_thread_id")) or 0,
        ident=_number(row.get("thread_id")),
        name=_text(row.get("thread_name")),
        frames=tuple(_frame(frame) for frame in frames if isinstance(frame, dict)) if isinstance(frames, list) else (),
        has_gil=True if row.get("owns_gil") is True else None,
        active=row["active"] if isinstance(row.get("active"), bool) else None,
    )


def _frame(row: dict[str, Any]) -> Frame:
    name, module = _text(row.get("name")), _text(row.get("module"))
    file, line = _text(row.get("filename")), _number(row.get("line"))
    if not module and not looks_native(file):
        return python(name, file or None, line or None)
    source = file if file != module else ""
    return native(name, library=module or None, file=source or None, line=line or None)


def _number(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
