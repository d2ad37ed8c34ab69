"""What came of one run of the script with a change, and what its traceback tells."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FRAME = re.compile(
    r'^[ |+]*File "(?:[^"]*/site-packages/)?(?P<path>[^"]+)", line (?P<line>\d+),? in (?P<function>.+)$'
)


class Effect(StrEnum):
    """What a change does to the failure that is asked about."""

    CURED = "cured"
    SAME = "same"  # the script fails as before
    UNRESOLVED = "unresolved"  # it fails in another way


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingFrame:
    """A line of a traceback."""

    path: str  # from site-packages on, for a library
    line: int
    function: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What came of a proposal."""

    effect: Effect
    exception: str = ""  # its type and the first line of its message, of what is unresolved
    frames: tuple[FailingFrame, ...] = ()  # innermost first
    seconds: float = 0


def failing_frames(stderr: str) -> tuple[FailingFrame, ...]:
    """Return the frames of all tracebacks of stderr, each once, innermost first; a cause comes before its effect."""
    found: dict[FailingFrame, None] = {}
    for block in _tracebacks(stderr):
        found |= dict.fromkeys(reversed(block))
    return tuple(found)


def _tracebacks(stderr: str) -> Iterator[list[FailingFrame]]:
    block: list[FailingFrame] = []
    for line in stderr.splitlines():
        if match := _FRAME.match(line):
            block.append(FailingFrame(path=match["path"], line=int(match["line"]), function=match["function"]))
        elif "Traceback (most recent call last)" in line and block:
            yield block
            block = []
    if block:
        yield block
