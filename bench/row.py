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
    real: bool = False  # installs torch

    def is_wanted(self, wanted: set[str]) -> bool:
        """Return True where the command line asks for this row."""
        return self.name in wanted or "all" in wanted or ("real" in wanted if self.real else not wanted)
