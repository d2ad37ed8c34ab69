"""A run as Markdown, for an issue or a job's summary: what matters most comes first, and it always fits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from whichtorch.matrix.compare.comparison import CellChange, ChangeKind, Comparison, EnvironmentChange
from whichtorch.matrix.grouping import grouped
from whichtorch.matrix.model import NO_PATCH, Cell, Environment, Outcome, Result
from whichtorch.reports import cell_text
from whichtorch.reports.numbers_text import number_tables
from whichtorch.reports.shown_text import (
    cleaned_line,
    code_span,
    cut,
    escaped,
    fenced,
    first_and_last_lines,
    short_list,
    shown_path,
    table_head,
    table_row,
)
from whichtorch.reports.stored_run_text import (
    WORSE,
    changes_words,
    grouped_changes,
    labels_of,
    remarks_of,
    shown_side,
    transition,
)
from whichtorch.reports.table import (
    cell_word,
    column_heads,
    legend_lines,
    outcome_words,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from whichtorch.matrix.records.store import StoredRun

LIMIT = 900_000  # bytes of UTF-8: GitHub drops a job's summary of more than 1024 kB whole, and others may add to it
ROWS = 200  # of a table: in a longer one passing rows are left out, because nobody finds the others among them
COLUMNS = 10  # environments in a table: more continue in a table below
EXCERPTS = 3  # failures of which the output is shown, one for each signature
NAMED = 6  # environments, packages: more are counted

_SAME = {ChangeKind.STILL_FAILING, ChangeKind.STILL_PASSING}
_DOUBT = "They ended well, but not, or not for sure, on what they are there for."


class Priority(StrEnum):
    """What an item is about, the most important first; the note on what is left out uses these words."""

    WORSE = "changes for the worse"
    HANGS = "hangs that nobody expects"
    UNEXPECTED = "other failures that nobody expects"
    PREVENTED = "reasons why nothing was learnt"
    CHANGES = "other changes"
    NUMBERS = "numbers"
    RED_ROWS = "rows with what nobody expects"
    SURPRISES = "passes that nobody expects"
    ROWS = "other rows that do not just pass"
    DOUBTED = "doubted passes"
    KNOWN = "known failures"
    PASSING_ROWS = "rows of passes and skips"
    OUTPUT = "excerpts of output"
    ENVIRONMENTS = "environments"


NOTE = 50 + sum(len(f"1,000,000 {priority}, ") for priority in Priority)  # bytes of a note on what is left out, at most


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportItem:
    """Lines that are shown together or not at all."""

    priority: Priority
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSection:
    """Items, between lines that are always shown."""

    head: tuple[str, ...]
    items: tuple[ReportItem, ...] = ()
    tail: tuple[str, ...] = ("",)


def markdown_lines(
    stored: StoredRun, command: str, comparison: Comparison | None = None, *, limit: int = LIMIT
) -> Iterator[str]:
    """Yield the whole report in at most `limit` bytes; `command` is how the user calls `matrix`.

    It begins with what changed since another run, if a comparison is given. Then come the counts, unexpected cells,
    numbers, the table, known failures, doubted passes, the ends of what failures wrote, and the environments. Where it
    does not fit, the least important items are left out, and a note says what is missing.
    """
    result = stored.result
    labels = {environment.id: environment.label for environment in result.environments}
    known = [cell for cell in result.cells if cell.is_red and cell.expected]
    doubted = [cell for cell in result.cells if cell.doubt]
    sections = [
        _title(result),
        *([_changes(comparison)] if comparison else []),
        _counts(result),
        *_section(_unexpected(stored, labels, command), "## Not expected", ""),
        *_numbers(result),
        *_tables(result),
        *_section(_grouped(known, labels, Priority.KNOWN), "## Known failures", ""),
        *_section(_grouped(doubted, labels, Priority.DOUBTED), "## Doubted passes", "", _DOUBT, ""),
        *_section(_output(stored, labels), "## What they wrote", "", tail=()),
        ReportSection(head=("## Environments", ""), items=tuple(map(_environment, result.environments)), tail=()),
    ]
    yield from fitted(sections, limit)


def _section(items: Iterable[ReportItem], *head: str, tail: tuple[str, ...] = ("",)) -> list[ReportSection]:
    """Return a section, or none where there are no items."""
    given = tuple(items)
    return [ReportSection(head=head, items=given, tail=tail)] if given else []


def _title(result: Result) -> ReportSection:
    run = result.run
    name = f" {code_span(run.name)}" if run.name else ""
    started = f"Started {escaped(run.started)}, took {run.seconds:.0f} s."
    lines = [f"# whichtorch run {escaped(run.id)}{name}", "", started]
    if not result.is_complete:
        done = f"{len(result.cells)} of {run.planned} cells are here" if run.planned else "cells may be missing"
        lines += ["", f"**{'Interrupted' if run.interrupted else 'Not finished'}**: {done}."]
    return ReportSection(head=tuple(lines))


def _counts(result: Result) -> ReportSection:
    red = [cell.outcome for cell in _by_severity(result)]
    hung = red.count(Outcome.HANG)
    prevented = sum(cell.outcome.is_prevented for cell in result.cells)
    count = len(result.environments)
    total = f"{len(result.cells):,} cells in {count:,} environment{'' if count == 1 else 's'}"
    parts = [f"**{len(red):,} red that nobody expects**" + (f", {hung:,} of them hangs" if hung else "")] if red else []
    parts += [f"{prevented:,} without evidence"] if prevented else []
    what = "; ".join(parts) or "nothing red that nobody expects"
    return ReportSection(head=(f"{total}: {what}.", "", *fenced(legend_lines(result))))


def _changes(comparison: Comparison) -> ReportSection:
    counts = Counter(cell.change for cell in comparison.cells)
    words = ", ".join(f"{counts[change]:,} {change}" for change in ChangeKind if counts[change])
    head = [f"## Changed since run {escaped(comparison.old.id)}", "", f"{words or 'no cells to compare'}.", ""]
    for id_ in comparison.incomplete:
        head += [f"Run {escaped(id_)} did not come to its end: what it lacks is no evidence.", ""]
    items = [_change(change) for change in comparison.cells if change.change not in _SAME]
    items += [_environment_changes(group) for group in grouped_changes(comparison.environments)]
    return ReportSection(head=tuple(head), items=tuple(items))


def _change(change: CellChange) -> ReportItem:
    side = shown_side(change)
    what = f": {_words(side.what)}" if side.what and change.change is not ChangeKind.FIXED else ""
    where = f"{code_span(change.name)} in {code_span(side.environment)}"
    rest = "".join(f"; {escaped(remark)}" for remark in remarks_of(change))
    priority = Priority.WORSE if change.change in WORSE else Priority.CHANGES
    return _bullet(priority, f"**{change.change}** ({transition(change)}) {where}{what}{rest}")


def _environment_changes(group: Sequence[EnvironmentChange]) -> ReportItem:
    names, commits = [code_span(labels_of(change)) for change in group], group[0].commits
    link = f"; [commits]({commits})" if commits else ""  # of two hashes: no other text can be in it
    return _bullet(Priority.ENVIRONMENTS, f"{short_list(names, NAMED)}: {escaped(changes_words(group[0]))}{link}")


def _unexpected(stored: StoredRun, labels: dict[str, str], command: str) -> Iterator[ReportItem]:
    """Yield unexpected cells that are red, what kept cells from running, then other unexpected cells."""
    environments = {environment.id: environment for environment in stored.result.environments}
    for cell in _by_severity(stored.result):
        priority = Priority.HANGS if cell.outcome is Outcome.HANG else Priority.UNEXPECTED
        yield _bullet(priority, _failure(cell, environments[cell.environment], stored, command))
    for environment in environments.values():
        if not environment.is_usable:
            log = f"; log {code_span(shown_path(environment.log))}" if environment.log else ""
            what = f"**{environment.outcome}** {code_span(environment.label)}: {_words(environment.reason or '-')}{log}"
            yield _bullet(Priority.PREVENTED, what)
    cells = stored.result.cells
    prevented = [cell for cell in cells if cell.outcome.is_prevented and environments[cell.environment].is_usable]
    yield from _grouped(prevented, labels, Priority.PREVENTED)
    others = [cell for cell in cells if not (cell.expected or cell.is_red or cell.outcome.is_prevented)]
    yield from _grouped(others, labels, Priority.SURPRISES)


def _by_severity(result: Result) -> list[Cell]:
    """Return the cells that are red and not expected, the worst first."""
    red = (cell for cell in result.cells if cell.has_failed)
    return sorted(red, key=lambda cell: -cell.outcome.row.severity)


def _failure(cell: Cell, environment: Environment, stored: StoredRun, command: str) -> str:
    """Return what happened to a cell, with its log and the command that runs it again."""
    facts = [_words(cell_text.summary(cell)), escaped(cell_text.conditions_of(cell))]
    files = {"log": cell_text.log_of(stored, cell), "stacks": cell_text.stacks_of(stored, cell)}
    facts += [f"{name} {code_span(shown_path(path))}" for name, path in files.items() if path]
    facts += [f"rerun {code_span(cell_text.rerun_command(cell, environment, command))}"]
    where = f"{code_span(cell.name)} in {code_span(environment.label)}"
    return f"**{cell_word(cell)}** {where}: {'; '.join(filter(None, facts))}"


def _grouped(cells: Iterable[Cell], labels: dict[str, str], priority: Priority) -> Iterator[ReportItem]:
    """Yield a line for each test and what happened to it, with the environments in which that is so."""

    def what_happened(cell: Cell) -> tuple[str, str, str, str]:
        what = (cell.reason if cell.doubt else None) or cell_text.summary(cell)
        return cell_word(cell), cell.name, what, cell.known

    for (word, name, what, known), alike in grouped(cells, what_happened).items():
        where = [code_span(labels[cell.environment]) for cell in alike]
        why = f" ({_words(known)})" if known else ""
        says = f": {_words(what)}" if what != "-" else ""
        yield _bullet(priority, f"{word} {code_span(name)}{why} in {short_list(where, NAMED)}{says}")


def _numbers(result: Result) -> Iterator[ReportSection]:
    """Yield a table for each test that was measured, with a title before the first."""
    measured = [table for table in number_tables(result) if table.measures]
    for place, table in enumerate(measured):
        title = [] if place else ["## Numbers", ""]
        head = [*title, *table_head([code_span(table.test), *map(escaped, table.measures)])]
        rows = (table_row(map(escaped, row)) for row in table.rows)
        items = tuple(ReportItem(priority=Priority.NUMBERS, lines=(row,)) for row in rows)
        remarks = [f"- {escaped(remark)}" for remark in table.remarks]
        yield ReportSection(head=tuple(head), items=items, tail=("", *remarks, ""))


def _tables(result: Result) -> Iterator[ReportSection]:
    """Yield a title, then a table for each COLUMNS environments."""
    rows = grouped(result.cells, lambda cell: cell.name)
    priorities = {name: _priority(cells) for name, cells in rows.items()}
    dull = {name for name, priority in priorities.items() if priority is Priority.PASSING_ROWS}
    left_out = dull if len(rows) > ROWS else set()
    codes = outcome_words(result)
    shared, heads = column_heads(result.environments)
    title = ["## Table", ""]
    title += [f"Everywhere: {escaped(shared)}", ""] if shared else []
    title += [f"*Not shown, for there are many: {len(left_out):,} {Priority.PASSING_ROWS}.*", ""] if left_out else []
    yield ReportSection(head=tuple(title), tail=())
    for begin in range(0, len(heads), COLUMNS):
        columns = slice(begin, begin + COLUMNS)
        items = [
            ReportItem(priority=priorities[name], lines=(table_row([code_span(name), *words[columns]]),))
            for name, words in codes.items()
            if name not in left_out
        ]
        if items:
            headers = ["scenario", *map(escaped, heads[columns])]
            yield ReportSection(head=tuple(table_head(headers)), items=tuple(items))


def _priority(row: Sequence[Cell]) -> Priority:
    if any(not cell.expected and not cell.outcome.is_prevented for cell in row):
        return Priority.RED_ROWS
    return Priority.PASSING_ROWS if all(map(_is_dull, row)) else Priority.ROWS


def _is_dull(cell: Cell) -> bool:
    """Return True for a plain pass, a skip, and cells of an environment that cannot be used, which is told above."""
    if cell.outcome is Outcome.PASS:
        return not (cell.flaky or cell.is_doubted)
    return cell.outcome in {Outcome.SKIP, Outcome.UNBUILDABLE, Outcome.BROKEN}


def _output(stored: StoredRun, labels: dict[str, str]) -> Iterator[ReportItem]:
    """Yield the ends of what some unexpected failures wrote, one for each signature."""
    shown: set[tuple[str, str | None]] = set()
    for cell in _by_severity(stored.result):
        log, kind = cell_text.log_of(stored, cell), (cell.outcome, cell.signature)
        lines = first_and_last_lines(log) if log and kind not in shown and len(shown) < EXCERPTS else []
        if lines:
            title = f"{code_span(cell.name)} in {code_span(labels[cell.environment])}:"
            shown.add(kind)
            yield ReportItem(priority=Priority.OUTPUT, lines=(title, "", *fenced(lines), ""))


def _environment(environment: Environment) -> ReportItem:
    commit = environment.fingerprint.git_version or "unknown commit"
    facts = f"torch {environment.torch}, {commit}, Python {environment.python}, config {environment.config}"
    facts += "" if environment.patch == NO_PATCH else f", patch {environment.patch}"
    name = f"{code_span(environment.label)} ({code_span(environment.id)})"
    return _bullet(Priority.ENVIRONMENTS, f"{name}: {_words(facts)}")


def _bullet(priority: Priority, text: str) -> ReportItem:
    return ReportItem(priority=priority, lines=(f"- {text}",))


def _words(text: str) -> str:
    return escaped(cut(cleaned_line(text)))


def size_of(lines: Iterable[str]) -> int:
    """Return how many bytes lines take in a file."""
    return sum(len(line.encode()) + 1 for line in lines)


def fitted(sections: Sequence[ReportSection], limit: int) -> Iterator[str]:
    """Yield the lines of sections in at most `limit` bytes; a note says which items are left out, and how many."""
    kept = _kept(sections, limit)
    for number, section in enumerate(sections):
        yield from section.head
        left_out: Counter[Priority] = Counter()
        for index, item in enumerate(section.items):
            if (number, index) in kept:
                yield from item.lines
            else:
                left_out[item.priority] += 1
        if left_out:
            what = ", ".join(f"{count:,} {priority}" for priority, count in left_out.items())
            yield from ("", f"*Left out to stay below {limit // 1000} kB: {what}.*")  # the blank line ends a table
        yield from section.tail


def _kept(sections: Sequence[ReportSection], limit: int) -> frozenset[tuple[int, int]]:
    """Return section and index of the items that fit: the most important, of equals the first in the report."""
    items = [(at, index, item) for at, section in enumerate(sections) for index, item in enumerate(section.items)]
    budget = limit - sum(size_of((*section.head, *section.tail)) for section in sections)
    if sum(size_of(item.lines) for *_, item in items) > budget:
        budget -= NOTE * len(sections)
    order = list(Priority)
    kept = []
    for number, index, item in sorted(items, key=lambda row: order.index(row[2].priority)):
        budget -= size_of(item.lines)
        if budget < 0:
            break
        kept.append((number, index))
    return frozenset(kept)
