"""Texts of changed files -> a patch, as `patch -p1` and `git apply` take it."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

_LINE = re.compile(r"[^\n]*\n|[^\n]+")
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


class ChangedLine(NamedTuple):
    """A line that a patch adds or removes."""

    path: str
    is_added: bool
    number: int  # in the patched file, of a line that is added; else in the bad release's, from 1
    text: str  # without its end


def unified_diff(bad: Mapping[str, str | None], changed: Mapping[str, str]) -> str:
    """Return the diff of files, by their paths from site-packages on; a text before is None for a new file."""
    return "".join(line for path in sorted(changed) for line in _file_diff(path, bad.get(path), changed[path]))


def _file_diff(path: str, bad: str | None, changed: str) -> Iterator[str]:
    old = f"a/{path}" if bad is not None else "/dev/null"
    for line in difflib.unified_diff(_LINE.findall(bad or ""), _LINE.findall(changed), old, f"b/{path}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def lines_of(patch: str) -> int:
    """Return how many lines a patch adds or removes."""
    return sum(line.startswith(("+", "-")) and not line.startswith(("+++ ", "--- ")) for line in patch.splitlines())


def changed_lines(patch: str) -> Iterator[ChangedLine]:
    """Yield the lines that a patch adds or removes, in its order."""
    path, old, new, old_end, new_end = "", 1, 1, 1, 1
    for line in patch.split("\n"):
        mark, text = line[:1], line[1:]
        if old < old_end or new < new_end:
            if mark in {"+", "-"}:
                yield ChangedLine(path=path, is_added=mark == "+", number=new if mark == "+" else old, text=text)
            old += mark in {"-", " "}
            new += mark in {"+", " "}
        elif hunk := _HUNK.match(line):
            old, new = int(hunk[1]), int(hunk[3])
            old_end, new_end = old + int(hunk[2] or 1), new + int(hunk[4] or 1)
        elif line.startswith("+++ b/"):
            path = line.removeprefix("+++ b/")


def patched(bad: Sequence[str], lines: Collection[ChangedLine]) -> list[str]:
    """Return the lines of a file with those that a patch changes in it."""
    removed = {line.number for line in lines if not line.is_added}
    added = {line.number: line.text for line in lines if line.is_added}
    left = (text for number, text in enumerate(bad, 1) if number not in removed)
    whole = range(1, len(bad) - len(removed) + len(added) + 1)
    return [added[number] if number in added else next(left, "") for number in whole]
