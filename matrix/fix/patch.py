"""Texts of changed files -> a patch, as `patch -p1` and `git apply` take it."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


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
