"""The facts of a stored run that its reports are made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import read_json
from whichtorch.base.errors import UsageError
from whichtorch.model import variant_suffix
from whichtorch.records import stored_runs
from whichtorch.records.compare.comparison import Comparison, compare
from whichtorch.records.compare.nights import Night, NumberNights, measured_before, nights, numbers_until

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from whichtorch.bisect.bisection import Bisection
    from whichtorch.model import Result
    from whichtorch.records.store import RunFolder, StoredRun
    from whichtorch.triage.case import Case

NIGHTS = 30  # earlier runs whose outcomes are read; numbers are of all
SHARED = 0.5  # of a run's cells that an earlier run must have, to be compared with it unasked


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run, what changed since an earlier one, its nights, and the searches it led to."""

    stored: StoredRun
    comparison: Comparison | None = None  # None where no earlier run is like it
    before: Result | None = None  # the run that it is compared with
    nights: tuple[Night, ...] = ()  # the last is the run itself
    numbers: tuple[NumberNights, ...] = ()  # until the run itself
    bisections: tuple[Bisection, ...] = ()  # the latest of each of its tests
    cases: tuple[Case, ...] = ()  # likewise


def gather(head: RunFolder, home: Path, baseline: RunFolder | None = None) -> RunFacts:
    """Return the facts of a run, which may lie outside the state folder `home`, compared with `baseline` if given."""
    stored = head.read()
    heads = stored_runs.all_runs(home)
    earlier = _earlier(head, heads)
    history = nights(stored.result, earlier[-NIGHTS:])
    baseline, result = baseline or _like(history, earlier), stored.result
    before = baseline.read().result if baseline else None
    comparison = compare(before, result, measured_before(result, home), home) if before else None
    return RunFacts(
        stored=stored,
        comparison=comparison,
        before=before,
        nights=history,
        numbers=numbers_until(stored.result, earlier),
        bisections=tuple(_bisections(stored, [head] if head.run.kind == "bisect" else heads)),
        cases=tuple(_cases(stored, heads)),
    )


def run_before(head: RunFolder, home: Path) -> RunFolder:
    """Return the last run before another one that is like it. Raises UsageError where there is none."""
    earlier = _earlier(head, stored_runs.all_runs(home))
    if before := _like(nights(head.read().result, earlier[-NIGHTS:]), earlier):
        return before
    hint = "name two runs: `whichtorch runs` lists them"
    raise UsageError(f"no earlier run has the cells of {head.run.id}", hint=hint)


def _earlier(head: RunFolder, heads: Iterable[RunFolder]) -> list[RunFolder]:
    """Return the runs before another one that can be compared with it, oldest first."""
    return [
        other
        for other in heads
        if other.run.kind in stored_runs.COMPARABLE
        and (other.run.started, other.run.id) < (head.run.started, head.run.id)
        and other.run.id not in head.run.parts
    ]


def _like(history: Sequence[Night], earlier: Sequence[RunFolder]) -> RunFolder | None:
    """Return the last of earlier runs that has enough cells of the last night."""
    alike = {night.run.id for night in history[:-1] if night.cells >= SHARED * history[-1].cells}
    return next((other for other in reversed(earlier) if other.run.id in alike), None)


def _bisections(stored: StoredRun, heads: Iterable[RunFolder]) -> Iterator[Bisection]:
    """Yield the latest answer of those runs for each test of the stored run."""
    from whichtorch.bisect.bisection import Bisection

    names = {cell.name for cell in stored.result.cells}
    answers = (read_json(head.folder / "bisection.json", Bisection) for head in heads)
    latest = {answer.scenario: answer for answer in answers if answer is not None}
    yield from (answer for name, answer in latest.items() if name in names or names & answer.tests.keys())


def _cases(stored: StoredRun, heads: Iterable[RunFolder]) -> Iterator[Case]:
    """Yield the latest case of each test of the stored run that is red somewhere, as far as it was triaged."""
    from whichtorch.triage.case import FILE, Case

    red = {(cell.source_hash, variant_suffix(cell.variant)) for cell in stored.result.cells if cell.is_red}
    cases = (read_json(head.folder / FILE, Case) for head in heads)
    triaged = (case for case in cases if case is not None and case.reproduction is not None)
    latest = {(case.source_hash, variant_suffix(case.variant)): case for case in triaged}
    yield from (case for key, case in latest.items() if key in red)
