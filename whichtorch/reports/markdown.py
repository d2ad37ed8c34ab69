"""A run as Markdown, for an issue or a job's summary: what matters most comes first, and it always fits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from whichtorch.base.grouping import grouped
from whichtorch.model import NO_PATCH, Cell, Environment, Outcome
from whichtorch.reports import cell_text, table
from whichtorch.reports.document import Code, Heading, Items, Listing, Paragraph, Strong, first_and_last_lines, markdown
from whichtorch.reports.numbers_text import number_blocks
from whichtorch.reports.stored_run_text import change_items, count_lines, environment_items

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whichtorch.records.compare.comparison import Comparison
    from whichtorch.records.store import StoredRun
    from whichtorch.reports.document import Block, Line

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
    if missing := table.incomplete(result):
        yield Paragraph((Strong("Not complete"), f": {missing}."))
    if comparison:
        yield Heading(f"Changed since run {comparison.old.id}")
        for id_ in comparison.incomplete:
            yield Paragraph(f"Run {id_} did not come to its end: what it lacks is no evidence.")
        yield Listing(list(count_lines(comparison)) or ["no cells to compare"])
        yield Items(list(change_items(comparison)), CHANGES)
        yield Items(list(environment_items(comparison)), CHANGES)
    yield Paragraph(f"{table.run_sentence(result)}.")
    yield Listing(list(table.legend_lines(result)))
    unexpected, known = table.wrong_cells(result)
    red = [cell for cell in known if cell.is_red]
    prevented = [cell for cell in known if cell.outcome.is_prevented]
    unusual = (
        *table.cell_items(unexpected, stored, command),
        *table.unusable_items(result),
        *table.cell_items(prevented, stored),
    )
    yield from _section("Not expected", unusual)
    if any(cell.numbers for cell in result.cells):
        yield Heading("Numbers")
        yield from number_blocks(result, NUMBERS)
    yield Heading("Table")
    rows = grouped(result.cells, lambda cell: cell.name)
    dull = {name for name, cells in rows.items() if all(map(_is_dull, cells))} if len(rows) > ROWS else set()
    if dull:
        yield Paragraph(f"Not shown, for there are many: {len(dull):,} rows of passes and skips.")
    yield from table.matrix_blocks(result, dull, TABLE)
    yield from _section("Known failures", table.cell_items(red, stored), KNOWN)
    yield from _section("Doubted passes", table.cell_items([cell for cell in known if cell.doubt], stored), KNOWN)
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
        yield Listing(lines, title=(Code(cell.name), " in ", Code(labels[cell.environment])), rank=OUTPUT)


def _environment(environment: Environment) -> Line:
    commit = environment.fingerprint.git_version or "unknown commit"
    facts = f"torch {environment.torch}, {commit}, Python {environment.python}, config {environment.config}"
    facts += "" if environment.patch == NO_PATCH else f", patch {environment.patch}"
    return Code(environment.label), " (", Code(environment.id), f"): {facts}"
