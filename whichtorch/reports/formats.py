"""The formats of the report on a stored run.

`whichtorch report` has an option for each row of FORMATS, and by default writes all that have a file. What makes a
format is imported when it is called, so that every other command starts as fast.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.grouping import grouped
from whichtorch.base.redaction import restored
from whichtorch.model import NO_PATCH, Cell, Environment, Outcome
from whichtorch.reports import cell_text
from whichtorch.reports.document import Code, Heading, Items, Listing, Paragraph, Strong, markdown
from whichtorch.reports.numbers_text import number_blocks
from whichtorch.reports.shown_text import first_and_last_lines, one_line, short_list
from whichtorch.reports.stored_run_text import change_items, count_lines, environment_items
from whichtorch.reports.table import (
    cell_items,
    cell_word,
    incomplete,
    legend_lines,
    matrix_blocks,
    run_sentence,
    unusable_items,
    wrong_cells,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from whichtorch.model import Model
    from whichtorch.reports.cell_text import CommandPrefix
    from whichtorch.reports.run_facts import RunFacts

    Content = Iterable[str] | bytes | Model  # lines, a whole file, or what is written as JSON
    from collections.abc import Iterable, Iterator, Sequence

    from whichtorch.model import Scenario
    from whichtorch.records.compare.comparison import Comparison
    from whichtorch.records.store import StoredRun
    from whichtorch.reports.document import Block, Line


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFormat:
    """A format: the option that asks for it, the file it goes to, and what makes it."""

    name: str  # of the option
    help: str
    file: str = ""  # name in the output folder, where no option names a file; "" for none
    in_folder: bool = False  # the option names a folder for `file`
    is_redacted: bool = False  # it is made from stored records alone, which are redacted
    content: Callable[[RunFacts, CommandPrefix], Content]


def _html(facts: RunFacts, called: CommandPrefix) -> bytes:
    from whichtorch.reports.page.html import page

    return page(facts, called).encode()


def _markdown(facts: RunFacts, called: CommandPrefix) -> Iterable[str]:
    from whichtorch.reports.bisection_text import bisection_blocks
    from whichtorch.reports.document import markdown

    if facts.stored.result.run.kind == "bisect" and facts.bisections:
        return markdown(bisection_blocks(facts.bisections[0], facts.stored.file))
    return markdown_lines(facts.stored, called("matrix"), facts.comparison)


def _junit(facts: RunFacts, called: CommandPrefix) -> bytes:
    from whichtorch.reports.junit import junit_xml

    return junit_xml(facts.stored, called("matrix"))


def _annotations(facts: RunFacts, _called: CommandPrefix) -> Iterable[str]:

    return annotation_lines(facts.stored)


_PAGE_HELP = "Write the page, DIR/index.html."
_MARKDOWN_HELP = "Write Markdown, ready for an issue."
FORMATS = (
    ReportFormat(name="html", help=_PAGE_HELP, file="index.html", in_folder=True, is_redacted=True, content=_html),
    ReportFormat(name="markdown", help=_MARKDOWN_HELP, file="report.md", content=_markdown),
    ReportFormat(name="junit", help="Write JUnit XML.", file="junit.xml", content=_junit),
    ReportFormat(
        name="json",
        help="Write the answer as JSON; - for standard output.",
        file="result.json",
        content=lambda facts, _called: facts.stored.result,
    ),
    ReportFormat(name="annotations", help="Write GitHub's annotations of unexpected failures.", content=_annotations),
)


MOST = 10  # errors of one step that GitHub shows
ENVIRONMENTS_NAMED = 6
_ESCAPES = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
_PROPERTY_ESCAPES = str.maketrans({"%": "%25", ":": "%3A", ",": "%2C"})


def annotation_lines(stored: StoredRun) -> Iterator[str]:
    """Yield an error for each unexpected failure, the worst first, with the environments that have it."""
    result = stored.result
    labels = {environment.id: environment.label for environment in result.environments}
    scenarios = {scenario.name: scenario for scenario in result.scenarios}
    red = [cell for cell in result.cells if cell.has_failed]
    failures = list(grouped(red, lambda cell: (cell.name, cell.outcome, cell.signature)).values())
    failures.sort(key=lambda cells: -cells[0].outcome.row.severity)
    for cells in failures[:MOST]:
        first = cells[0]
        where = {"file": "", "line": ""} | _place(first, scenarios.get(first.scenario))
        where["title"] = one_line(f"{cell_word(first)} {first.name}")
        properties = ",".join(f"{name}={text.translate(_PROPERTY_ESCAPES)}" for name, text in where.items() if text)
        environments = short_list([labels[cell.environment] for cell in cells], ENVIRONMENTS_NAMED)
        message = f"{one_line(cell_text.summary(first))}\nin {environments}"
        yield f"::error {properties}::{message.translate(_ESCAPES)}"
    if len(failures) > MOST:
        yield f"::notice::the report shows {len(failures) - MOST} more"


def _place(cell: Cell, scenario: Scenario | None) -> dict[str, str]:
    """Return the script's path in the repository, and its innermost line in the signature."""
    if scenario is None:
        return {}
    path = restored(scenario.path)
    top = Path(os.environ.get("GITHUB_WORKSPACE") or Path.cwd())
    file = path.relative_to(top) if path.is_relative_to(top) else Path(cell.scenario)
    line = re.search(rf"(?<![\w.-]){re.escape(path.name)}:(\d+)", cell.signature or "")
    return {"file": str(file), "line": line[1] if line else "1"}


LIMIT = 900_000  # bytes of UTF-8: GitHub drops a job's summary of more than 1024 kB whole, and others may add to it
ROWS = 200  # of a table: in a longer one passing rows are left out, because nobody finds the others among them
EXCERPTS = 3  # failures of which the output is shown, one for each signature
# what is left out first where it does not fit: the highest
CHANGES, NUMBERS, TABLE, KNOWN, OUTPUT, ENVIRONMENTS = range(1, 7)


def markdown_lines(
    stored: StoredRun, command: str, comparison: Comparison | None = None, *, limit: int = LIMIT
) -> list[str]:
    """Return the whole report in at most `limit` bytes; `command` is how the user calls `matrix`."""
    return markdown(_blocks(stored, command, comparison), limit)


def _blocks(stored: StoredRun, command: str, comparison: Comparison | None) -> Iterator[Block]:
    """Yield what changed since another run, if a comparison is given, what nobody expects, and then everything else."""
    result = stored.result
    run = result.run
    yield Heading((f"whichtorch run {run.id} ", Code(run.name)), level=1)
    yield Paragraph(f"Started {run.started}, took {run.seconds:.0f} s.")
    if missing := incomplete(result):
        yield Paragraph((Strong("Not complete"), f": {missing}."))
    if comparison:
        yield Heading(f"Changed since run {comparison.old.id}")
        for id_ in comparison.incomplete:
            yield Paragraph(f"Run {id_} did not come to its end: what it lacks is no evidence.")
        yield Listing(list(count_lines(comparison)) or ["no cells to compare"])
        yield Items(list(change_items(comparison)), CHANGES)
        yield Items(list(environment_items(comparison)), CHANGES)
    yield Paragraph(f"{run_sentence(result)}.")
    yield Listing(list(legend_lines(result)))
    unexpected, known = wrong_cells(result)
    red = [cell for cell in known if cell.is_red]
    prevented = [cell for cell in known if cell.outcome.is_prevented]
    unusual = (*cell_items(unexpected, stored, command), *unusable_items(result), *cell_items(prevented, stored))
    yield from _section("Not expected", unusual)
    if any(cell.numbers for cell in result.cells):
        yield Heading("Numbers")
        yield from number_blocks(result, NUMBERS)
    yield Heading("Table")
    rows = grouped(result.cells, lambda cell: cell.name)
    dull = {name for name, cells in rows.items() if all(map(_is_dull, cells))} if len(rows) > ROWS else set()
    if dull:
        yield Paragraph(f"Not shown, for there are many: {len(dull):,} rows of passes and skips.")
    yield from matrix_blocks(result, dull, TABLE)
    yield from _section("Known failures", cell_items(red, stored), KNOWN)
    doubted = [cell for cell in known if cell.doubt]
    yield from _section("Doubted passes", cell_items(doubted, stored), KNOWN)
    if excerpts := list(_excerpts(stored, unexpected)):
        yield Heading("What they wrote")
        yield from excerpts
    yield from _section("Environments", map(_environment, result.environments), ENVIRONMENTS)


def _section(title: str, lines: Iterable[Line], rank: int = 0) -> Sequence[Block]:
    """Return lines with a heading, or nothing where there are none."""
    given = list(lines)
    return [Heading(title), Items(given, rank)] if given else []


def _is_dull(cell: Cell) -> bool:
    """Return True for a plain pass, a skip, and cells of an environment that cannot be used, which is told above."""
    if cell.outcome is Outcome.PASS:
        return cell.expected and not (cell.flaky or cell.is_doubted)
    is_told = cell.outcome in {Outcome.UNBUILDABLE, Outcome.BROKEN}
    return is_told or (cell.outcome is Outcome.SKIP and cell.expected)


def _excerpts(stored: StoredRun, cells: Iterable[Cell]) -> Iterator[Listing]:
    """Yield the ends of what some failures wrote, one for each signature."""
    labels = {environment.id: environment.label for environment in stored.result.environments}
    kinds = grouped((cell for cell in cells if cell.is_red), lambda cell: (cell.outcome, cell.signature))
    logs = ((cell_text.log_of(stored, alike[0]), alike[0]) for alike in kinds.values())
    found = [(lines, cell) for log, cell in logs if (lines := first_and_last_lines(log))]
    for lines, cell in found[:EXCERPTS]:
        title = Code(cell.name), " in ", Code(labels[cell.environment])
        yield Listing(lines, title=title, rank=OUTPUT)


def _environment(environment: Environment) -> Line:
    commit = environment.fingerprint.git_version or "unknown commit"
    facts = f"torch {environment.torch}, {commit}, Python {environment.python}, config {environment.config}"
    facts += "" if environment.patch == NO_PATCH else f", patch {environment.patch}"
    return Code(environment.label), " (", Code(environment.id), f"): {facts}"
