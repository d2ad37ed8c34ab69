"""Read a TOML text, and find the line of a key in it by pattern, because tomllib keeps no positions.

Lines are counted from 0. Where a key is not found, the line of the nearest key above it counts.
"""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any

_ARRAY_HEADER = re.compile(r"\s*\[\[\s*(\w+)\s*\]\]")
_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*|[\[\]{}]')
_DEPTH = {"[": 1, "{": 1, "]": -1, "}": -1}


def parsed(text: str) -> dict[str, Any]:
    """Return what a text says. Raises TOMLDecodeError, also for what is nested too deep and for endless numbers."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("It is nested too deep") from None
    except ValueError as error:
        raise error if isinstance(error, tomllib.TOMLDecodeError) else tomllib.TOMLDecodeError(str(error)) from None


def line_of(text: str, keys: Iterable[str | int]) -> int:
    """Return the line of a key, given as the names of tables and the indices of elements that lead to it."""
    lines = text.split("\n")
    line = 0
    for key in keys:
        if isinstance(key, int):
            line = next(itertools.islice(_element_lines(lines, line), key, None), line)
            continue
        name = re.escape(key)
        as_header = rf"\[+\s*(?:[\w'\"-]+\s*\.\s*)*{name}\s*[.\]]"
        as_key = rf"(^|.*[{{,\s.])[\"']?{name}[\"']?\s*[.=]"
        pattern = re.compile(rf"\s*(?:{as_header}|{as_key})")
        line = next((number for number in range(line, len(lines)) if pattern.match(lines[number])), line)
    return line


def line_of_error(error: tomllib.TOMLDecodeError, text: str) -> tuple[int, str]:
    """Return the line of tomllib's error, and its message without the position."""
    message = re.sub(r"\s*\(at .*\)$", "", str(error))
    position = re.search(r"\(at line (\d+)", str(error))
    line = int(position[1]) - 1 if position else max(0, text.count("\n") - 1)
    return line, message[:1].lower() + message[1:]


def _element_lines(lines: list[str], start: int) -> Iterator[int]:
    """Yield the line of each table in the array that begins in line `start`."""
    header = _ARRAY_HEADER.match(lines[start]) if start < len(lines) else None
    if header:
        for number in range(start, len(lines)):
            again = _ARRAY_HEADER.match(lines[number])
            if again and again[1] == header[1]:
                yield number
        return
    depth = 0
    for number in range(start, len(lines)):
        for piece in _TOKEN.findall(lines[number]):
            if piece == "{" and depth == 1:
                yield number
            depth += _DEPTH.get(piece, 0)
            if depth == 0 and piece == "]":
                return
