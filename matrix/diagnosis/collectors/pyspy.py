"""Read what `py-spy dump --native` writes, as JSON or as text.

The text form shows who has the GIL of active threads only, JSON of idle ones too (measured: the holder in a GIL
cycle); neither shows who waits for it. `--json` has no command line and one process per document.
"""

from __future__ import annotations

import json
import re
from typing import Any

from matrix.diagnosis.stacks import Frame, Process, Thread, looks_native, native, python

_PROCESS = re.compile(r"^Process (\d+): (.*)$")
_THREAD = re.compile(r'^Thread (0x[0-9A-Fa-f]+|\d+) \((?P<status>[^)]*)\)(?:: "(?P<name>.*)")?$')
_FRAME = re.compile(r"^ {4}(?P<function>\S.*?) \((?P<place>[^()]*(?:\([^()]*\)[^()]*)*)\)$")
_PLACE = re.compile(r"^(?P<file>.*):(?P<line>\d+)$")


def parse(text: str) -> tuple[Process, ...]:
    """Return the processes in a dump of either form; what cannot be read is left out."""
    return parse_json(text) if text.lstrip().startswith("[") else parse_text(text)


def parse_json(text: str) -> tuple[Process, ...]:
    """Return the processes in the JSON form: a list of threads, each with its pid."""
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    threads: dict[int, list[Thread]] = {}
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("pid"), int):
            threads.setdefault(row["pid"], []).append(_json_thread(row))
    return tuple(Process(pid=pid, threads=tuple(found)) for pid, found in threads.items())


def _json_thread(row: dict[str, Any]) -> Thread:
    frames = row.get("frames")
    return Thread(
        tid=_number(row.get("os_thread_id")) or 0,
        ident=_number(row.get("thread_id")),
        name=_text(row.get("thread_name")),
        frames=tuple(_json_frame(one) for one in frames if isinstance(one, dict)) if isinstance(frames, list) else (),
        has_gil=True if row.get("owns_gil") is True else None,
        active=row["active"] if isinstance(row.get("active"), bool) else None,
    )


def _json_frame(row: dict[str, Any]) -> Frame:
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


def parse_text(text: str) -> tuple[Process, ...]:
    """Return the processes in the text form, which with --subprocesses holds several."""
    processes: list[Process] = []
    pid, command = 0, ""
    threads: list[Thread] = []

    def close() -> None:
        if pid or threads:
            processes.append(Process(pid=pid, command=command, threads=tuple(threads)))

    for line in text.splitlines():
        if header := _PROCESS.match(line):
            close()
            pid, command, threads = int(header[1]), header[2], []
        elif header := _THREAD.match(line):
            threads.append(_text_thread(header))
        elif threads and (frame := _FRAME.match(line)):
            last = threads[-1]
            frames = (*last.frames, _text_frame(frame["function"], frame["place"]))
            threads[-1] = last.model_copy(update={"frames": frames})
    close()
    return tuple(processes)


def _text_thread(header: re.Match[str]) -> Thread:
    words = header["status"].split("+")
    # Where it cannot tell the kernel's number it prints pthread_self() in hexadecimal.
    number, is_ident = int(header[1], 0) if header[1].startswith("0x") else int(header[1]), "x" in header[1]
    return Thread(
        tid=0 if is_ident else number,
        ident=number if is_ident else None,
        name=header["name"] or "",
        has_gil=True if "gil" in words else None,
        active="active" in words,
    )


def _text_frame(function: str, place: str) -> Frame:
    found = _PLACE.match(place)
    if found is None:
        return native(function, library=place)
    if looks_native(found["file"]):
        return native(function, file=found["file"], line=int(found["line"]))
    return python(function, found["file"], int(found["line"]))
