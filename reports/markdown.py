"""A run as Markdown, for an issue or a job's summary: what matters first, and never too long to be shown."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from matrix.compare.comparison import ChangeKind
from matrix.diagnosis.sameness import different
from matrix.model import Outcome
from reports import cell_text
from reports.comparison_text import alike, changes_words, transition
from reports.excerpts import cut, ends_of, one_line
from reports.gfm import code_span, fenced, plain, table_head, table_row
from reports.lists import some
from reports.rerun_commands import rerun
from reports.sections import Interest, Piece, Section, fitted
from reports.table import code, heads_of, legend_lines, short

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from matrix.compare.comparison import CellChange, Comparison, EnvironmentChange
    from matrix.model import Cell, Environment, Result
    from matrix.records.stored_runs import StoredRun

LIMIT = 900_000  # bytes of UTF-8: GitHub drops a job's summary of more than 1024 kB whole, and others may add to it
ISSUE = 65_000  # bytes: GitHub refuses an issue or a comment of more than 65,536 characters
ROWS = 200  # of a table: in a longer one those of passes are left out, for nobody finds the others
COLUMNS = 10  # environments in a table: more continue in a table below
EXCERPTS = 3  # failures of which the output is shown, one for each signature
NAMED = 6  # environments, packages: more are counted

_WORSE = {ChangeKind.REGRESSION, ChangeKind.NEW_FAILURE, ChangeKind.DIFFERENT}
_SAME = {ChangeKind.STILL_FAILING, ChangeKind.STILL_PASSING}
_SEVERITY = (Outcome.HANG, Outcome.CRASH, Outcome.OOM, Outcome.FAIL)


def markdown_lines(
    stored: StoredRun, command: str, comparison: Comparison | None = None, *, limit: int = LIMIT
) -> Iterator[str]:
    """Yield the whole report in at most `limit` bytes; `command` is how the user calls `matrix`.

    First comes what changed since another run, if one is given; then the counts, what nobody expects, the table,
    known failures, doubted passes, the ends of what failures wrote, and the environments. Where it does not fit,
    the least interesting goes first (reports/sections.py), and the text says what is missing.
    """
    sections = [_title(stored.result)]
    if comparison is not None:
        sections.append(_changes(comparison))
    sections += [_counts(stored.result), *_unexpected(stored, command), *_tables(stored.result)]
    sections += [*_known(stored.result), *_doubted(stored.result), *_output(stored)]
    sections.append(_environments(stored.result))
    yield from fitted(sections, limit)


def _title(result: Result) -> Section:
    run = result.run
    name = f" {code_span(run.name)}" if run.name else ""
    lines = [f"# whichtorch run {plain(run.id)}{name}", "", f"Started {plain(run.started)}, took {run.seconds:.0f} s."]
    if not result.is_complete:
        done = f"{len(result.cells)} of {run.planned} cells are here" if run.planned else "cells may be missing"
        lines += ["", f"**{'Interrupted' if run.interrupted else 'Not finished'}**: {done}."]
    return Section(head=tuple(lines))


def _counts(result: Result) -> Section:
    red = sum(cell.outcome.is_red and not cell.expected for cell in result.cells)
    hung = sum(cell.outcome is Outcome.HANG and not cell.expected for cell in result.cells)
    prevented = sum(cell.outcome.is_prevented for cell in result.cells)
    total = f"{len(result.cells):,} cells in {_count(len(result.environments), 'environment')}"
    parts = [f"**{red:,} red that nobody expects**" + (f", {hung:,} of them hangs" if hung else "")] if red else []
    parts += [f"{prevented:,} without evidence"] if prevented else []
    head = f"{total}: {'; '.join(parts)}." if parts else f"{total}: nothing red that nobody expects."
    return Section(head=(head, "", *fenced(legend_lines(result))))


# what changed


def _changes(comparison: Comparison) -> Section:
    counts = Counter(cell.change for cell in comparison.cells)
    said = ", ".join(f"{counts[change]:,} {change}" for change in ChangeKind if counts[change])
    head = [f"## Changed since run {plain(comparison.old.id)}", "", f"{said or 'no cells to compare'}.", ""]
    for id_ in comparison.incomplete:
        head += [f"Run {plain(id_)} did not come to its end: what it lacks is no evidence.", ""]
    pieces = [_change(one) for one in comparison.cells if one.change not in _SAME]
    pieces += [_environment_changes(group) for group in alike(comparison.environments)]
    return Section(head=tuple(head), pieces=tuple(pieces))


def _change(one: CellChange) -> Piece:
    side = one.new or one.old
    assert side is not None
    what = f": {_words(side.signature)}" if side.signature and one.change is not ChangeKind.FIXED else ""
    remarks = [one.why, "the script is not the same as before" if one.script_changed else ""]
    remarks = [f"; {plain(remark)}" for remark in remarks if remark]
    place = f"{code_span(one.name)} in {code_span(side.environment)}"
    line = f"- **{one.change}** ({transition(one)}) {place}{what}{''.join(remarks)}"
    return Piece(interest=Interest.WORSE if one.change in _WORSE else Interest.CHANGES, lines=(line,))


def _environment_changes(group: Sequence[EnvironmentChange]) -> Piece:
    """Return how environments changed that changed alike."""
    names = [code_span(one.old if one.old == one.new else f"{one.old} -> {one.new}") for one in group]
    commits = group[0].commits
    link = f"; [commits]({commits})" if commits else ""  # of two hashes: no other text can be in it
    line = f"- {some(names, NAMED)}: {plain(changes_words(group[0]))}{link}"
    return Piece(interest=Interest.ENVIRONMENTS, lines=(line,))


# cells


def _unexpected(stored: StoredRun, command: str) -> Iterator[Section]:
    """Yield what nobody expects: what is red, what kept cells from running, what passes or was too slow."""
    environments = {one.id: one for one in stored.result.environments}
    pieces = []
    for cell in sorted((one for one in stored.result.cells if _is_red(one)), key=_severity):
        interest = Interest.HANGS if cell.outcome is Outcome.HANG else Interest.UNEXPECTED
        pieces.append(Piece(interest=interest, lines=(_bullet(cell, environments[cell.environment], stored, command),)))
    pieces += list(_prevented(stored, environments))
    others = [
        one for one in stored.result.cells if not (one.expected or one.outcome.is_red or one.outcome.is_prevented)
    ]
    pieces += list(_grouped(others, environments, Interest.SURPRISES))
    if pieces:
        yield Section(head=("## Not expected", ""), pieces=tuple(pieces))


def _is_red(cell: Cell) -> bool:
    return cell.outcome.is_red and not cell.expected


def _severity(cell: Cell) -> int:
    return _SEVERITY.index(cell.outcome)


def _bullet(cell: Cell, environment: Environment, stored: StoredRun, command: str) -> str:
    """Return a cell that nobody expects so, with its log and how to run it again."""
    facts = [_words(cell_text.what(cell)), plain(cell_text.conditions_of(cell))]
    log, stacks = cell_text.log_of(stored, cell), cell_text.stacks_of(stored, cell)
    facts += [f"log {code_span(short(log))}"] if log else []
    facts += [f"stacks {code_span(short(stacks))}"] if stacks else []
    facts += [f"rerun {code_span(rerun(cell, environment, command))}"]
    place = f"{code_span(cell.name)} in {code_span(environment.label)}"
    return f"- **{code(cell)}** {place}: {'; '.join(fact for fact in facts if fact)}"


def _prevented(stored: StoredRun, environments: dict[str, Environment]) -> Iterator[Piece]:
    """Yield why nothing was learnt; of an environment that cannot be had, once."""
    for environment in environments.values():
        if not environment.is_usable:
            log = f"; log {code_span(short(environment.log))}" if environment.log else ""
            what = (
                f"- **{environment.outcome}** {code_span(environment.label)}: {_words(environment.reason or '-')}{log}"
            )
            yield Piece(interest=Interest.PREVENTED, lines=(what,))
    own = [
        cell for cell in stored.result.cells if cell.outcome.is_prevented and environments[cell.environment].is_usable
    ]
    yield from _grouped(own, environments, Interest.PREVENTED)


def _known(result: Result) -> Iterator[Section]:
    known = [cell for cell in result.cells if cell.outcome.is_red and cell.expected]
    if known:
        environments = {one.id: one for one in result.environments}
        pieces = tuple(_grouped(known, environments, Interest.KNOWN))
        yield Section(head=("## Known failures", ""), pieces=pieces)


def _doubted(result: Result) -> Iterator[Section]:
    doubted = [cell for cell in result.cells if cell.is_doubted]
    if doubted:
        environments = {one.id: one for one in result.environments}
        head = ("## Doubted passes", "", "They ended well, but not, or not for sure, on what they are there for.", "")
        yield Section(head=head, pieces=tuple(_grouped(doubted, environments, Interest.DOUBTED)))


def _grouped(those: Iterable[Cell], environments: dict[str, Environment], interest: Interest) -> Iterator[Piece]:
    """Yield a line for each test and what happened to it, with the environments in which that is so."""
    groups: dict[tuple[str, str, str, str], list[str]] = {}
    for cell in those:
        what = (cell.reason if cell.is_doubted else None) or cell_text.what(cell)
        groups.setdefault((code(cell), cell.name, what, cell.known), []).append(environments[cell.environment].label)
    for (word, name, what, known), labels in groups.items():
        where = some([code_span(label) for label in labels], NAMED)
        why = f" ({_words(known)})" if known else ""
        says = f": {_words(what)}" if what != "-" else ""
        yield Piece(interest=interest, lines=(f"- {word} {code_span(name)}{why} in {where}{says}",))


# the table


def _tables(result: Result) -> Iterator[Section]:
    """Yield the table, a section for each so many environments."""
    rows: dict[str, dict[str, Cell]] = {}
    for cell in result.cells:
        rows.setdefault(cell.name, {})[cell.environment] = cell
    interests = {name: _interest(row.values()) for name, row in rows.items()}
    dull = {name for name, interest in interests.items() if interest is Interest.PASSING_ROWS}
    left_out = dull if len(rows) > ROWS else set()
    others = different(result.cells)
    shared, heads = heads_of(result.environments)
    title = ["## Table", ""]
    title += [f"Everywhere: {plain(shared)}", ""] if shared else []
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
            headers = ["scenario", *(plain(heads[environment.id]) for environment in block)]
            yield Section(head=tuple(table_head(headers)), pieces=tuple(pieces))


def _interest(row: Iterable[Cell]) -> Interest:
    there = list(row)
    if any(not cell.expected and not cell.outcome.is_prevented for cell in there):
        return Interest.RED_ROWS
    if all(_is_dull(cell) for cell in there):
        return Interest.PASSING_ROWS
    return Interest.ROWS


def _is_dull(cell: Cell) -> bool:
    """Return True for a plain pass, a skip, and what its environment, told once above, kept from running."""
    if cell.outcome is Outcome.PASS:
        return not (cell.flaky or cell.is_doubted)
    return cell.outcome in {Outcome.SKIP, Outcome.UNBUILDABLE, Outcome.BROKEN}


def _codes(row: dict[str, Cell], block: Sequence[Environment], others: frozenset[tuple[str, str]]) -> Iterator[str]:
    for environment in block:
        cell = row.get(environment.id)
        yield code(cell, is_different=(cell.name, cell.environment) in others) if cell else "-"


# what is left


def _output(stored: StoredRun) -> Iterator[Section]:
    """Yield the ends of what some failures wrote that nobody expects, one for each signature."""
    labels = {one.id: one.label for one in stored.result.environments}
    shown: dict[tuple[str, str | None], Piece] = {}
    for cell in sorted((one for one in stored.result.cells if _is_red(one)), key=_severity):
        log = cell_text.log_of(stored, cell)
        if len(shown) == EXCERPTS or (cell.outcome, cell.signature) in shown or log is None:
            continue
        if lines := ends_of(log):
            title = f"{code_span(cell.name)} in {code_span(labels[cell.environment])}:"
            piece = Piece(interest=Interest.OUTPUT, lines=(title, "", *fenced(lines), ""))
            shown[cell.outcome, cell.signature] = piece
    if shown:
        yield Section(head=("## What they wrote", ""), pieces=tuple(shown.values()), tail=())


def _environments(result: Result) -> Section:
    pieces = []
    for environment in result.environments:
        commit = environment.fingerprint.git_version or "unknown commit"
        facts = f"torch {environment.torch}, {commit}, Python {environment.python}, config {environment.config}"
        line = f"- {code_span(environment.label)} ({code_span(environment.id)}): {_words(facts)}"
        pieces.append(Piece(interest=Interest.ENVIRONMENTS, lines=(line,)))
    return Section(head=("## Environments", ""), pieces=tuple(pieces), tail=())


def _words(text: str) -> str:
    """Return somebody's text as one line, however long it is."""
    return plain(cut(one_line(text)))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
