"""What scripts wrote, fit to be shown: of bounded length, and without what steers a terminal or breaks a format."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

HEAD, TAIL = 5, 25  # lines of a failure's output that are shown
READ = 2**16  # bytes of each end of an output file that are looked at
LONGEST = 500  # characters of a line: more is somebody's data

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*(?:\x1b\\)?|[ -/]*[0-~])"
)
# what XML 1.0 forbids, lone surrogates among it, the other control characters, and what turns the direction of writing
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def cleaned(text: str) -> str:
    """Return text without terminal escapes and control characters; tabs and line ends stay."""
    return _UNFIT.sub("", _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def one_line(text: str) -> str:
    """Return cleaned text as one line."""
    return " ".join(cleaned(text).split())


def cut(line: str) -> str:
    """Return what is shown of a line, however long it is."""
    return line if len(line) <= LONGEST else line[: LONGEST - 1] + "…"


def ends_of(path: Path) -> list[str]:
    """Return the first and last lines of a file, long ones cut; none where it is gone or empty."""
    try:
        head, tail, size = read_ends(path, READ)
    except OSError:
        return []
    lines = [cut(line) for line in cleaned((head + tail).decode(errors="replace")).split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    is_whole = size <= len(head) + len(tail)
    if is_whole and len(lines) <= HEAD + TAIL:
        return lines
    left_out = max(0, len(lines) - HEAD - TAIL)
    return [*lines[:HEAD], f"… {left_out} lines{'' if is_whole else ' or more'} …", *lines[HEAD:][-TAIL:]]


def read_ends(path: Path, length: int) -> tuple[bytes, bytes, int]:
    """Return so many bytes of the beginning of a file, as many of the rest's end, and the size; raise OSError."""
    with path.open("rb") as file:
        head = file.read(length)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(len(head), size - length))
        return head, file.read(length), size
