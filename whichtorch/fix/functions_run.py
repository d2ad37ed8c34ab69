"""What a run's processes noted -> which functions of torch it ran, in the order in which they first ran."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from whichtorch.fix.units import Part

_MODULE = "<module>"
_WORD = re.compile(r"[A-Za-z_]\w*")


class FunctionsRun:
    """The functions of one run: file from site-packages on, first line, name."""

    def __init__(self, functions: Sequence[tuple[str, int, str]], *, passed: bool = False) -> None:
        self.functions = tuple(dict.fromkeys(functions))
        self.passed = passed  # so that what it would have run later is not missing

    @classmethod
    def of_notes(cls, notes: Mapping[str, str], *, passed: bool = False) -> FunctionsRun:
        """Return what the processes of a run noted, a file each, the first process first; torn lines are left out."""
        found: list[tuple[str, int, str]] = []
        for name in sorted(notes, key=lambda name: int(name.partition(".")[0])):
            for text in notes[name].splitlines():
                match text.split("\t"):
                    case [path, line, function] if line.isdigit():
                        found.append((path, int(line), function))
        return cls(found, passed=passed)

    def besides(self, usual: FunctionsRun) -> FunctionsRun:
        """Return the functions that did not run in another run, by path and name: other releases have other lines."""
        others = {(path, name) for path, _, name in usual.functions}
        return FunctionsRun([each for each in self.functions if (each[0], each[2]) not in others])

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

    def words(self, text_of: Callable[[str], str | None]) -> set[str]:
        """Return the words of all functions that ran, from the texts of their files; None for a file that is gone."""
        words: set[str] = set()
        for path, begins in self._lines.items():
            lines = (text_of(path) or "").split("\n")
            for line, _ in begins:
                words |= words_of("\n".join(_block(lines, line)))
        return words

    def place(self, path: str, part: Part | None) -> int | None:
        """Return when the last function of a part of a file began to run, as a place in the order; None for never."""
        if part is None:
            return None
        lines = self._lines.get(path, [])
        end = part.first + part.whole.count("\n") + (not part.whole.endswith("\n"))
        inside = lines[bisect_left(lines, (part.first, -1)) : bisect_left(lines, (end, -1))]
        return max((place for _, place in inside), default=None)


def words_of(text: str) -> set[str]:
    """Return the words of a source."""
    return set(_WORD.findall(text))


def _block(lines: Sequence[str], first: int) -> Iterator[str]:
    """Yield the lines of a function from its first one on, its decorators and `def`: as far as they are indented."""
    indent = len(lines[first - 1]) - len(lines[first - 1].lstrip()) if first <= len(lines) else 0
    is_inside = False
    for line in lines[first - 1 :]:
        deep = len(line) - len(line.lstrip()) > indent
        if is_inside and line.strip() and not deep and not line.lstrip().startswith((")", "]", "}")):
            return
        is_inside = is_inside or deep
        yield line
