"""What a run's processes noted -> which functions of torch it ran, in the order in which they first ran."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from matrix.fix.parts import Part

_MODULE = "<module>"


class FunctionsRun:
    """The functions of one run: file from site-packages on, first line, name."""

    def __init__(self, functions: Sequence[tuple[str, int, str]]) -> None:
        self.functions = tuple(dict.fromkeys(functions))

    @cached_property
    def loaded(self) -> frozenset[str]:
        """The files that were loaded."""
        return frozenset(path for path, _, _ in self.functions)

    @cached_property
    def active(self) -> frozenset[str]:
        """The files of which functions ran."""
        return frozenset(self._lines)

    @cached_property
    def _lines(self) -> Mapping[str, list[tuple[int, int]]]:
        """First line and place in the order, by file, sorted."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for place, (path, line, name) in enumerate(self.functions):
            if name != _MODULE:
                found[path].append((line, place))
        return {path: sorted(lines) for path, lines in found.items()}

    def first_lines(self, path: str) -> list[int]:
        """Return the first lines of a file's functions that ran."""
        return [line for line, _ in self._lines.get(path, [])]

    def place(self, path: str, part: Part | None) -> int | None:
        """Return when the last function of a part of a file began to run, as a place in the order; None for never."""
        if part is None:
            return None
        lines = self._lines.get(path, [])
        last = part.first + part.whole.count("\n")
        inside = lines[bisect_left(lines, (part.first, -1)) : bisect_left(lines, (last + 1, -1))]
        return max((place for _, place in inside), default=None)


def read_functions_run(folder: Path) -> FunctionsRun:
    """Return what the processes of a run wrote into a folder, the first process first; torn lines are left out."""
    found: list[tuple[str, int, str]] = []
    for file in sorted(folder.glob("*.txt"), key=lambda file: int(file.stem)):
        for text in file.read_text(encoding="utf-8", errors="replace").splitlines():
            match text.split("\t"):
                case [path, line, name] if line.isdigit():
                    found.append((path, int(line), name))
    return FunctionsRun(found)
