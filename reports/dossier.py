"""All that is told of a run: itself, what changed since the last one, its nights, and the searches it led to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from matrix.bisect.bisection import Bisection
from matrix.compare.comparison import compare
from matrix.compare.nights import nights
from matrix.records import stored_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matrix.compare.comparison import Comparison
    from matrix.compare.nights import Night
    from matrix.records.stored_runs import RunFolder, StoredRun

NIGHTS = 30  # earlier runs that are looked at
SHARED = 0.5  # of a run's cells, that an earlier one must have for the two to be compared unasked


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What reports are made from."""

    stored: StoredRun
    comparison: Comparison | None  # None where no earlier run is like it
    nights: tuple[Night, ...]  # the last is the run itself
    bisections: tuple[Bisection, ...]  # of tests that it has, the latest of each


def told(head: RunFolder, home: Path, baseline: RunFolder | None = None) -> Story:
    """Return what is known of a run in a state folder, or from elsewhere; `baseline` is the run to compare it with."""
    stored = stored_runs.read(head)
    known = stored_runs.all_runs(home)
    earlier = [one for one in known if one.run.kind in stored_runs.COMPARABLE and _is_before(one, head)][-NIGHTS:]
    found = nights(stored.result, earlier)
    if baseline is None:
        alike = {night.run.id for night in found[:-1] if night.cells >= SHARED * len(stored.result.cells)}
        baseline = next((one for one in reversed(earlier) if one.run.id in alike), None)
    return Story(
        stored=stored,
        comparison=compare(stored_runs.read(baseline).result, stored.result) if baseline else None,
        nights=found,
        bisections=tuple(_bisections(stored, head, known)),
    )


def _is_before(one: RunFolder, other: RunFolder) -> bool:
    return (one.run.started, one.run.id) < (other.run.started, other.run.id) and one.run.id not in other.run.parts


def _bisections(stored: StoredRun, head: RunFolder, known: Sequence[RunFolder]) -> Iterator[Bisection]:
    """Yield the answer of the run itself, if it was a search; else the latest for each of its tests."""
    if head.run.kind == "bisect":
        known = [head]
    names = {cell.name for cell in stored.result.cells}
    found = {}
    for one in known:
        try:
            answer = Bisection.model_validate_json((one.folder / "bisection.json").read_bytes())
        except (OSError, ValidationError):
            continue
        if answer.scenario in names:
            found[answer.scenario] = answer
    yield from found.values()
