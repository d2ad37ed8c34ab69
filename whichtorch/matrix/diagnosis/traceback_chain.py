"""What Python wrote of an exception that ended a script -> its causes, each with message and frames.

    Traceback (most recent call last):
      File ".../torch/_inductor/codegen/cpp.py", line 4, in lower
    ZeroDivisionError: integer division or modulo by zero

    The above exception was the direct cause of the following exception:

    Traceback (most recent call last):
      File "repro.py", line 9, in <module>
    torch._inductor.exc.InductorError: ZeroDivisionError: integer division or modulo by zero

are two links. What a worker process reports of its own ("Original Traceback") belongs to the message that holds it,
and is a cause of it, too.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_HEADER = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<function>.+)$')
_EXCEPTION = re.compile(r"^(?P<type>[A-Za-z_][\w.]*(?:<locals>\.[\w.]+)*)(?:: ?(?P<message>.*))?$")
_LINKS = (
    "The above exception was the direct cause of the following exception:",
    "During handling of the above exception, another exception occurred:",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFrame:
    """A line of code that was being run."""

    file: str
    line: int
    function: str
    source: str = ""  # as the traceback shows it, "" where it does not


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkedException:
    """One exception of a chain."""

    type: str  # dotted, as it was written: "torch._dynamo.exc.Unsupported"
    message: str  # all its lines
    frames: tuple[CodeFrame, ...]  # innermost first

    @property
    def name(self) -> str:
        """The type without its module."""
        return self.type.rpartition(".")[2]


def read_chain(stderr: str) -> tuple[LinkedException, ...]:
    """Return the last exception that was written and what caused it, the effect first; empty where there is none."""
    lines = stderr.splitlines()
    headers = _last_headers(lines)
    blocks = [lines[start + 1 : end] for start, end in itertools.pairwise([*headers, len(lines)])]
    chain: list[LinkedException] = []
    for block in reversed(blocks):
        if (found := _read_block(block)) is not None:
            chain += [found, *_reported(found.message)]
    return tuple(chain)


def shortened(stderr: str, most: int) -> str:
    """Return the end of what was written to stderr, about `most` characters, its last exception among them.

    Where the message of that is longer, as a C++ compiler's is, its middle is left out.
    """
    if len(stderr) <= most:
        return stderr
    lines = stderr.splitlines(keepends=True)
    headers = _last_headers([line.rstrip("\r\n") for line in lines])
    starts = [sum(map(len, lines[:header])) for header in headers]
    if not starts or starts[-1] >= len(stderr) - most:
        return stderr[-most:]
    half = most // 2
    first = next(start for start in starts if starts[-1] - start <= half // 2)
    head, tail = stderr[first : first + half], stderr[-half:]
    return f"{head}\n[... {len(stderr) - first - 2 * half} characters cut here ...]\n{tail}"


def _last_headers(lines: Sequence[str]) -> list[int]:
    """Return where the tracebacks of the last chain begin, the first cause first; none where there is no traceback."""
    headers = [number for number, line in enumerate(lines) if line == _HEADER]
    first = len(headers) - 1
    while first > 0 and _is_linked(lines, headers[first]):
        first -= 1
    return headers[max(0, first) :]


def _is_linked(lines: Sequence[str], header: int) -> bool:
    """Return whether the traceback that begins here was raised because of the one before."""
    return any(line in _LINKS for line in lines[max(0, header - 3) : header])


def _read_block(block: Sequence[str]) -> LinkedException | None:
    """Return the exception of one traceback: frames, then type and message up to the next traceback."""
    frames: list[CodeFrame] = []
    for number, line in enumerate(block):
        if match := _FRAME.match(line):
            frames.append(_frame(match, block[number + 1 : number + 2]))
        elif not line.startswith(" ") and (exception := _EXCEPTION.match(line)):
            rest = [text for text in block[number + 1 :] if text not in _LINKS]
            message = "\n".join([exception["message"] or "", *rest]).strip()
            return LinkedException(type=exception["type"], message=message, frames=tuple(reversed(frames)))
    return None


def _frame(match: re.Match[str], following: Sequence[str]) -> CodeFrame:
    source = following[0].strip() if following and not _FRAME.match(following[0]) else ""
    return CodeFrame(file=match["file"], line=int(match["line"]), function=match["function"], source=source)


def _reported(message: str) -> Iterator[LinkedException]:
    """Yield the exception of another process that a message quotes."""
    _, quoted, rest = message.partition(f"Original {_HEADER}\n")
    if quoted and (found := _read_block(rest.splitlines())) is not None:
        yield found
