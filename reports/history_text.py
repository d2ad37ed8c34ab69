"""A scenario from night to night, as lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tabulate import tabulate

from matrix.compare.comparison import ChangeKind, classify, stream
from reports.table import code

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matrix.compare.nights import NightCell
    from matrix.model import Cell

_NO_NEWS = {ChangeKind.STILL_PASSING, ChangeKind.STILL_FAILING, ChangeKind.INCONCLUSIVE, ChangeKind.APPEARED}


def history_lines(history: dict[str, list[NightCell]]) -> Iterator[str]:
    """Yield for each cell a line per night and environment: when, where, what, and what changed since the last."""
    for name, seen in history.items():
        yield name
        body = tabulate(list(_rows(seen)), tablefmt="plain", disable_numparse=True)
        yield from (f"  {line}".rstrip() for line in body.splitlines())
        yield ""


def _rows(seen: Sequence[NightCell]) -> Iterator[list[str]]:
    last: dict[str, Cell] = {}
    for one in seen:
        place = stream(one.environment)
        before = last.get(place)
        change = classify(before, one.cell)[0] if before else ChangeKind.APPEARED
        last[place] = one.cell
        yield [
            one.run.started[:16].replace("T", " "),
            one.run.name or one.run.id,
            one.environment.label,
            code(one.cell),
            f"{one.cell.seconds:.1f} s",
            "" if change in _NO_NEWS else str(change),
            _known_since(one),
            one.cell.what or one.cell.reason or "",
        ]


def _known_since(one: NightCell) -> str:
    """Return since when a cell was known, where this run did not run it again."""
    started = max((attempt.started for attempt in one.cell.attempts), default="")
    is_old = bool(started) and not one.run.parts and started < one.run.started  # a merged run is younger than its parts
    return f"known since {started[:10]}" if is_old else ""
