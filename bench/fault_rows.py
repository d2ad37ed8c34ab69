"""Whether commands keep what they promise while faults strike."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

from bench.faults.__main__ import SEED, strike
from bench.row import BenchRow, Figure

if TYPE_CHECKING:
    from pathlib import Path


def _faults(moments: int, most: int | None, folder: Path) -> Figure:
    reports = strike(folder, (), moments, SEED, most)
    broken = [f"{each.fault.family}: {each.fault.name}: {text}" for each in reports for text in each.broken]
    print(*broken, sep="\n\n", file=sys.stderr)
    times = sum(each.times for each in reports)
    tried = sum(bool(each.times) for each in reports)
    text = f"{tried} of {len(reports)} faults, {times} times: {times - len(broken)} kept"
    return Figure(text=text, met=not broken)


def rows(moments: int, most: int | None) -> list[BenchRow]:
    """Return the row of the faults."""
    return [
        BenchRow(
            name="faults",
            what="the same command again after each fault: nothing lost, twice, left or wrong",
            target="all kept",
            measure=partial(_faults, moments, most),
            group="faults",
        )
    ]
