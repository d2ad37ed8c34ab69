"""The facts of a stored run, and the formats of its report.

`whichtorch report` has an option for each row of FORMATS, and by default writes all. What makes a format is imported
when it is called, so that every other command starts as fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.atomic_files import read_json
from whichtorch.matrix.compare.comparison import Comparison, compare
from whichtorch.matrix.compare.nights import Night, nights
from whichtorch.matrix.model import variant_suffix
from whichtorch.matrix.records import stored_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from whichtorch.matrix.bisect.bisection import Bisection
    from whichtorch.matrix.model import Model
    from whichtorch.matrix.records.store import RunFolder, StoredRun
    from whichtorch.matrix.triage.case import Case
    from whichtorch.reports.cell_text import CommandPrefix

    Content = Iterable[str] | bytes | Model  # lines, a whole file, or what is written as JSON

NIGHTS = 30  # earlier runs that are read
SHARED = 0.5  # of a run's cells that an earlier run must have, to be compared with it unasked


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A run, what changed since an earlier one, its nights, and the searches it led to."""

    stored: StoredRun
    comparison: Comparison | None = None  # None where no earlier run is like it
    nights: tuple[Night, ...] = ()  # the last is the run itself
    bisections: tuple[Bisection, ...] = ()  # the latest of each of its tests
    cases: tuple[Case, ...] = ()  # likewise


def gather(head: RunFolder, home: Path, baseline: RunFolder | None = None) -> RunFacts:
    """Return the facts of a run, which may lie outside the state folder `home`, compared with `baseline` if given."""
    stored = head.read()
    heads = stored_runs.all_runs(home)
    earlier = [
        other
        for other in heads
        if other.run.kind in stored_runs.COMPARABLE
        and (other.run.started, other.run.id) < (head.run.started, head.run.id)
        and other.run.id not in head.run.parts
    ][-NIGHTS:]
    history = nights(stored.result, earlier)
    if baseline is None:
        grouped_changes = {night.run.id for night in history[:-1] if night.cells >= SHARED * len(stored.result.cells)}
        baseline = next((other for other in reversed(earlier) if other.run.id in grouped_changes), None)
    return RunFacts(
        stored=stored,
        comparison=compare(baseline.read().result, stored.result) if baseline else None,
        nights=history,
        bisections=tuple(_bisections(stored, [head] if head.run.kind == "bisect" else heads)),
        cases=tuple(_cases(stored, heads)),
    )


def _bisections(stored: StoredRun, heads: Iterable[RunFolder]) -> Iterator[Bisection]:
    """Yield the latest answer of those runs for each test of the stored run."""
    from whichtorch.matrix.bisect.bisection import Bisection

    names = {cell.name for cell in stored.result.cells}
    latest = {}
    for head in heads:
        answer = read_json(head.folder / "bisection.json", Bisection)
        if answer is not None and answer.scenario in names:
            latest[answer.scenario] = answer
    yield from latest.values()


def _cases(stored: StoredRun, heads: Iterable[RunFolder]) -> Iterator[Case]:
    """Yield the latest case of each test of the stored run that is red somewhere, as far as it was triaged."""
    from whichtorch.matrix.triage.case import FILE, Case

    red = {(cell.source_hash, variant_suffix(cell.variant)) for cell in stored.result.cells if cell.outcome.is_red}
    latest = {}
    for head in heads:
        case = read_json(head.folder / FILE, Case)
        if case is not None and case.reproduction is not None:
            latest[case.source_hash, variant_suffix(case.variant)] = case
    yield from (case for key, case in latest.items() if key in red)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFormat:
    """A format: the option that asks for it, the file it goes to, and what makes it."""

    name: str  # of the option
    help: str
    file: str  # name in the output folder, where no option names a file
    in_folder: bool = False  # the option names a folder for `file`
    is_redacted: bool = False  # it is made from stored records alone, which are redacted
    content: Callable[[RunFacts, CommandPrefix], Content]


def _html(facts: RunFacts, called: CommandPrefix) -> bytes:
    from whichtorch.reports.page.html import page

    return page(facts, called).encode()


def _markdown(facts: RunFacts, called: CommandPrefix) -> Iterable[str]:
    from whichtorch.reports.bisection_text import bisection_markdown
    from whichtorch.reports.markdown import markdown_lines

    if facts.stored.result.run.kind == "bisect" and facts.bisections:
        return bisection_markdown(facts.bisections[0], facts.stored.file)
    return markdown_lines(facts.stored, called("matrix"), facts.comparison)


def _junit(facts: RunFacts, called: CommandPrefix) -> bytes:
    from whichtorch.reports.junit import junit_xml

    return junit_xml(facts.stored, called("matrix"))


_PAGE_HELP = "Write the page, DIR/index.html."
_MARKDOWN_HELP = "Write Markdown, for an issue or a job summary."
FORMATS = (
    ReportFormat(name="html", help=_PAGE_HELP, file="index.html", in_folder=True, is_redacted=True, content=_html),
    ReportFormat(name="markdown", help=_MARKDOWN_HELP, file="report.md", content=_markdown),
    ReportFormat(name="junit", help="Write JUnit XML.", file="junit.xml", content=_junit),
    ReportFormat(
        name="json",
        help="Write the result as JSON.",
        file="result.json",
        content=lambda facts, _called: facts.stored.result,
    ),
)
