"""A run as Markdown, for an issue or a job's summary: what matters most comes first, and it always fits."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from matrix.compare.comparison import ChangeKind
from matrix.diagnosis.sameness import different
from matrix.model import Outcome
from reports import cell_text
from reports.sections import Interest, Piece, Section, fitted
from reports.shown_text import cleaned_line, code_span, cut, ends_of, escaped, fenced, some, table_head, table_row
from reports.stored_run_text import WORSE, alike, changes_words, side_of, transition
from reports.table import code, heads_of, legend_lines, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.compare.comparison import CellChange, Comparison, EnvironmentChange
    from matrix.model import Cell, Environment, Result
    from matrix.records.stored_runs import StoredRun

LIMIT = 900_000  # bytes of UTF-8: GitHub drops a job's summary of more than 1024 kB whole, and others may add to it
ROWS = 200  # of a table: in a longer one passing rows are left out, because nobody finds the others among them
COLUMNS = 10  # environments in a table: more continue in a table below
EXCERPTS = 3  # failures of which the output is shown, one for each signature
NAMED = 6  # environments, packages: more are counted

_SAME = {ChangeKind.STILL_FAILING, ChangeKind.STILL_PASSING}
_DOUBT = "They ended well, but not, or not for sure, on what they are there for."


def markdown_lines(
    stored: StoredRun, command: str, comparison: Comparison | None = None, *, limit: int = LIMIT
) -> Iterator[str]:
    """Yield the whole report in at most `limit` bytes; `command` is how the user calls `matrix`.

    It begins with what changed since another run, if a comparison is given. Then come the counts, unexpected cells,
    the table, known failures, doubted passes, the ends of what failures wrote, and the environments. Where it does not
    fit, the least interesting pieces are left out (reports/sections.py), and a note says what is missing.
    """
    result = stored.result
    labels = {environment.id: environment.label for environment in result.environments}
    known = [cell for cell in result.cells if cell.outcome.is_red and cell.expected]
    doubted = [cell for cell in result.cells if cell.is_doubted]
    sections = [
        _title(result),
        *([_changes(comparison)] if comparison is not None else []),
        _counts(result),
        *_section("Not expected", _unexpected(stored, labels, command)),
        *_tables(result),
        *_section("Known failures", _grouped(known, labels, Interest.KNOWN)),
        *_section("Doubted passes", _grouped(doubted, labels, Interest.DOUBTED), text=(_DOUBT, "")),
        *_section("What they wrote", _output(stored, labels), tail=()),
        Section(head=("## Environments", ""), pieces=tuple(_environments(result)), tail=()),
    ]
    yield from fitted(sections, limit)


def _section(
    title: str, pieces: Iterable[Piece], *, text: tuple[str, ...] = (), tail: tuple[str, ...] = ("",)
) -> list[Section]:
    """Return a section with a title, or none where there are no pieces."""
    given = tuple(pieces)
    return [Section(head=(f"## {title}", "", *text), pieces=given, tail=tail)] if given else []


def _title(result: Result) -> Section:
    run = result.run
    name = f" {code_span(run.name)}" if run.name else ""
    started = f"Started {escaped(run.started)}, took {run.seconds:.0f} s."
    lines = [f"# whichtorch run {escaped(run.id)}{name}", "", started]
    if not result.is_complete:
        done = f"{len(result.cells)} of {run.planned} cells are here" if run.planned else "cells may be missing"
        lines += ["", f"**{'Interrupted' if run.interrupted else 'Not finished'}**: {done}."]
    return Section(head=tuple(lines))


def _counts(result: Result) -> Section:
    red = [cell.outcome for cell in result.cells if _is_red(cell)]
    hung = red.count(Outcome.HANG)
    prevented = sum(cell.outcome.is_prevented for cell in result.cells)
    count = len(result.environments)
    total = f"{len(result.cells):,} cells in {count:,} environment{'' if count == 1 else 's'}"
    parts = [f"**{len(red):,} red that nobody expects**" + (f", {hung:,} of them hangs" if hung else "")] if red else []
    parts += [f"{prevented:,} without evidence"] if prevented else []
    head = f"{total}: {'; '.join(parts)}." if parts else f"{total}: nothing red that nobody expects."
    return Section(head=(head, "", *fenced(legend_lines(result))))


# what changed


def _changes(comparison: Comparison) -> Section:
    counts = Counter(cell.change for cell in comparison.cells)
    words = ", ".join(f"{counts[change]:,} {change}" for change in ChangeKind if counts[change])
    head = [f"## Changed since run {escaped(comparison.old.id)}", "", f"{words or 'no cells to compare'}.", ""]
    for id_ in comparison.incomplete:
        head += [f"Run {escaped(id_)} did not come to its end: what it lacks is no evidence.", ""]
    pieces = [_change(change) for change in comparison.cells if change.change not in _SAME]
    pieces += [_environment_changes(group) for group in alike(comparison.environments)]
    return Section(head=tuple(head), pieces=tuple(pieces))


def _change(change: CellChange) -> Piece:
    side = side_of(change)
    what = f": {_words(side.signature)}" if side.signature and change.change is not ChangeKind.FIXED else ""
    remarks = [change.why, "the script is not the same as before" if change.script_changed else ""]
    where = f"{code_span(change.name)} in {code_span(side.environment)}"
    rest = "".join(f"; {escaped(remark)}" for remark in remarks if remark)
    interest = Interest.WORSE if change.change in WORSE else Interest.CHANGES
    return _bullet(interest, f"**{change.change}** ({transition(change)}) {where}{what}{rest}")


def _environment_changes(group: Sequence[EnvironmentChange]) -> Piece:
    """Return one piece for environments that changed alike."""
    names = [code_span(change.old if change.old == change.new else f"{change.old} -> {change.new}") for change in group]
    commits = group[0].commits
    link = f"; [commits]({commits})" if commits else ""  # of two hashes: no other text can be in it
    return _bullet(Interest.ENVIRONMENTS, f"{some(names, NAMED)}: {escaped(changes_words(group[0]))}{link}")


# cells


def _unexpected(stored: StoredRun, labels: dict[str, str], command: str) -> Iterator[Piece]:
    """Yield unexpected cells that are red, what kept cells from running, then other unexpected cells."""
    environments = {environment.id: environment for environment in stored.result.environments}
    for cell in _by_severity(stored.result):
        interest = Interest.HANGS if cell.outcome is Outcome.HANG else Interest.UNEXPECTED
        yield _bullet(interest, _failure(cell, environments[cell.environment], stored, command))
    for environment in environments.values():
        if not environment.is_usable:
            log = f"; log {code_span(short(environment.log))}" if environment.log else ""
            what = f"**{environment.outcome}** {code_span(environment.label)}: {_words(environment.reason or '-')}{log}"
            yield _bullet(Interest.PREVENTED, what)
    cells = stored.result.cells
    prevented = [cell for cell in cells if cell.outcome.is_prevented and environments[cell.environment].is_usable]
    yield from _grouped(prevented, labels, Interest.PREVENTED)
    others = [cell for cell in cells if not (cell.expected or cell.outcome.is_red or cell.outcome.is_prevented)]
    yield from _grouped(others, labels, Interest.SURPRISES)


def _is_red(cell: Cell) -> bool:
    return cell.outcome.is_red and not cell.expected


def _by_severity(result: Result) -> list[Cell]:
    """Return the cells that are red and not expected, the worst first."""
    return sorted(filter(_is_red, result.cells), key=lambda cell: -cell.outcome.row.severity)


def _failure(cell: Cell, environment: Environment, stored: StoredRun, command: str) -> str:
    """Return what happened to a cell, with its log and the command that runs it again."""
    facts = [_words(cell_text.what(cell)), escaped(cell_text.conditions_of(cell))]
    log, stacks = cell_text.log_of(stored, cell), cell_text.stacks_of(stored, cell)
    facts += [f"log {code_span(short(log))}"] if log else []
    facts += [f"stacks {code_span(short(stacks))}"] if stacks else []
    facts += [f"rerun {code_span(cell_text.rerun(cell, environment, command))}"]
    where = f"{code_span(cell.name)} in {code_span(environment.label)}"
    return f"**{code(cell)}** {where}: {'; '.join(filter(None, facts))}"


def _grouped(cells: Iterable[Cell], labels: dict[str, str], interest: Interest) -> Iterator[Piece]:
    """Yield a line for each test and what happened to it, with the environments in which that is so."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for cell in cells:
        what = (cell.reason if cell.is_doubted else None) or cell_text.what(cell)
        groups.setdefault((code(cell), cell.name, what, cell.known), []).append(code_span(labels[cell.environment]))
    for (word, name, what, known), where in groups.items():
        why = f" ({_words(known)})" if known else ""
        says = f": {_words(what)}" if what != "-" else ""
        yield _bullet(interest, f"{word} {code_span(name)}{why} in {some(where, NAMED)}{says}")


# the table


def _tables(result: Result) -> Iterator[Section]:
    """Yield a title, then a table for each COLUMNS environments."""
    rows: dict[str, dict[str, Cell]] = {}
    for cell in result.cells:
        rows.setdefault(cell.name, {})[cell.environment] = cell
    interests = {name: _interest(row.values()) for name, row in rows.items()}
    dull = {name for name, interest in interests.items() if interest is Interest.PASSING_ROWS}
    left_out = dull if len(rows) > ROWS else set()
    others = different(result.cells)
    shared, heads = heads_of(result.environments)
    title = ["## Table", ""]
    title += [f"Everywhere: {escaped(shared)}", ""] if shared else []
    title += [f"*Not shown, for there are many: {len(left_out):,} {Interest.PASSING_ROWS}.*", ""] if left_out else []
    yield Section(head=tuple(title), tail=())
    for first in range(0, len(result.environments), COLUMNS):
        block = result.environments[first : first + COLUMNS]
        pieces = [
            Piece(interest=interests[name], lines=(table_row([code_span(name), *_codes(row, block, others)]),))
            for name, row in rows.items()
            if name not in left_out
        ]
        if pieces:
            headers = ["scenario", *(escaped(heads[environment.id]) for environment in block)]
            yield Section(head=tuple(table_head(headers)), pieces=tuple(pieces))


def _interest(cells: Iterable[Cell]) -> Interest:
    row = list(cells)
    if any(not cell.expected and not cell.outcome.is_prevented for cell in row):
        return Interest.RED_ROWS
    return Interest.PASSING_ROWS if all(map(_is_dull, row)) else Interest.ROWS


def _is_dull(cell: Cell) -> bool:
    """Return True for a plain pass, a skip, and cells of an environment that cannot be used, which is told above."""
    if cell.outcome is Outcome.PASS:
        return not (cell.flaky or cell.is_doubted)
    return cell.outcome in {Outcome.SKIP, Outcome.UNBUILDABLE, Outcome.BROKEN}


def _codes(row: dict[str, Cell], block: Sequence[Environment], others: frozenset[tuple[str, str]]) -> Iterator[str]:
    for environment in block:
        cell = row.get(environment.id)
        yield code(cell, is_different=(cell.name, cell.environment) in others) if cell else "-"


# what is left


def _output(stored: StoredRun, labels: dict[str, str]) -> Iterator[Piece]:
    """Yield the ends of what some unexpected failures wrote, one for each signature."""
    shown: set[tuple[str, str | None]] = set()
    for cell in _by_severity(stored.result):
        log = cell_text.log_of(stored, cell)
        if len(shown) == EXCERPTS or (cell.outcome, cell.signature) in shown or log is None:
            continue
        if lines := ends_of(log):
            title = f"{code_span(cell.name)} in {code_span(labels[cell.environment])}:"
            shown.add((cell.outcome, cell.signature))
            yield Piece(interest=Interest.OUTPUT, lines=(title, "", *fenced(lines), ""))


def _environments(result: Result) -> Iterator[Piece]:
    for environment in result.environments:
        commit = environment.fingerprint.git_version or "unknown commit"
        facts = f"torch {environment.torch}, {commit}, Python {environment.python}, config {environment.config}"
        name = f"{code_span(environment.label)} ({code_span(environment.id)})"
        yield _bullet(Interest.ENVIRONMENTS, f"{name}: {_words(facts)}")


def _bullet(interest: Interest, text: str) -> Piece:
    return Piece(interest=interest, lines=(f"- {text}",))


def _words(text: str) -> str:
    """Return somebody's text as one line, however long it is."""
    return escaped(cut(cleaned_line(text)))
