"""A row of the bench table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What was measured."""

    text: str
    met: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """What is measured, how, and what it should be."""

    name: str
    what: str
    target: str
    measure: Callable[[Path], Figure]  # given an empty folder
    group: str = ""  # what is not measured unless asked for, by this name or its own

    def is_wanted(self, wanted: set[str]) -> bool:
        """Return True where the command line asks for this row."""
        return self.name in wanted or "all" in wanted or (self.group in wanted if self.group else not wanted)
