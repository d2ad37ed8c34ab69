"""Gather the facts that the reports of a stored run are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import ValidationError

from matrix.bisect.bisection import Bisection
from matrix.compare.comparison import compare
from matrix.compare.nights import nights
from matrix.records import stored_runs

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from matrix.compare.comparison import Comparison
    from matrix.compare.nights import Night
    from matrix.records.stored_runs import RunFolder, StoredRun

NIGHTS = 30  # earlier runs that are read
SHARED = 0.5  # of a run's cells that an earlier run must have, to be compared with it unasked


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run, what changed since an earlier one, its nights, and the searches it led to."""

    stored: StoredRun
    comparison: Comparison | None = None  # None where no earlier run is like it
    nights: tuple[Night, ...] = ()  # the last is the run itself
    bisections: tuple[Bisection, ...] = ()  # the latest of each of its tests


def gather(head: RunFolder, home: Path, baseline: RunFolder | None = None) -> RunFacts:
    """Return the facts of a run, which may lie outside the state folder `home`, compared with `baseline` if given."""
    stored = stored_runs.read(head)
    heads = stored_runs.all_runs(home)
    earlier = [other for other in heads if other.run.kind in stored_runs.COMPARABLE and _is_before(other, head)]
    earlier = earlier[-NIGHTS:]
    history = nights(stored.result, earlier)
    if baseline is None:
        alike = {night.run.id for night in history[:-1] if night.cells >= SHARED * len(stored.result.cells)}
        baseline = next((other for other in reversed(earlier) if other.run.id in alike), None)
    return RunFacts(
        stored=stored,
        comparison=compare(stored_runs.read(baseline).result, stored.result) if baseline else None,
        nights=history,
        bisections=tuple(_bisections(stored, [head] if head.run.kind == "bisect" else heads)),
    )


def _is_before(head: RunFolder, other: RunFolder) -> bool:
    is_earlier = (head.run.started, head.run.id) < (other.run.started, other.run.id)
    return is_earlier and head.run.id not in other.run.parts


def _bisections(stored: StoredRun, heads: Iterable[RunFolder]) -> Iterator[Bisection]:
    """Yield the latest answer of those runs for each test of the stored run."""
    names = {cell.name for cell in stored.result.cells}
    latest = {}
    for head in heads:
        try:
            answer = Bisection.model_validate_json((head.folder / "bisection.json").read_bytes())
        except (OSError, ValidationError):
            continue
        if answer.scenario in names:
            latest[answer.scenario] = answer
    yield from latest.values()
