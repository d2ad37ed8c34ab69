"""What a reader wants to know first: what changed, what hangs, what to do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from whichtorch.base.grouping import grouped
from whichtorch.model import Diagnosis, Environment, Outcome, Result
from whichtorch.records.compare.comparison import CellChange, ChangeKind, Comparison
from whichtorch.reports import cell_text
from whichtorch.reports.cell_text import WHY, NextStep, WrongTest
from whichtorch.reports.document import one_line
from whichtorch.reports.numbers_text import number_change_words
from whichtorch.reports.page.grid import NAME, WHAT, Grid, GridEntry
from whichtorch.reports.stored_run_text import CHANGED, MEANING, WORSE, causes_of, shown_side

if TYPE_CHECKING:
    from whichtorch.reports.cell_text import CommandPrefix
    from whichtorch.reports.run_facts import RunFacts

    Changes = Mapping[tuple[str, str], CellChange]  # by name and label

NAMED = 12  # cells of one list that are linked; more are counted
HANGS_SHOWN = 8  # groups of hangs
MOST_BOUNDARIES = 8  # boundaries that are listed; more are counted
RECOMMENDED = 5  # cells whose commands stand on top; those of the others are in their details

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLink:
    """A cell to jump to."""

    name: str
    label: str
    href: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellGroup:
    """Cells of which the same is said."""

    title: str
    links: tuple[CellLink, ...]
    count: int
    kind: str = ""  # for the page's colors
    note: str = ""
    more: str = ""  # who waits for whom


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A cell with the commands that help with it."""

    link: CellLink
    what: str
    why: str  # it is chosen
    outcome: Outcome
    commands: tuple[tuple[str, str], ...]  # each command, and what it does
    advice: tuple[str, ...] = ()  # what to do that no command does


def link_to(entry: GridEntry, note: str = "") -> CellLink:
    """Return the link that opens a cell."""
    label = entry.column.label
    href = "#cell=" + quote(f"{entry.row}@{label}", safe="/@,[]:")
    return CellLink(name=entry.row, label=label, href=href, note=one_line(note, WHAT))


def changed(grid: Grid, comparison: Comparison) -> list[CellGroup]:
    """Return what became of cells since the earlier run, the worst first; what is as it was is left out."""
    entries = {entry.key: entry for entry in grid.entries}
    groups = []
    for kind in CHANGED:
        if changes := comparison.of(kind):
            links = tuple(_change_link(change, entries) for change in changes[:NAMED])
            title = f"{len(changes)} {kind}: {MEANING[kind]}"
            groups.append(CellGroup(title=title, links=links, count=len(changes), kind=kind.value.replace(" ", "-")))
    return groups


def _change_link(change: CellChange, entries: Mapping[tuple[str, str], GridEntry]) -> CellLink:
    label = shown_side(change).environment
    old = change.old.outcome if change.old else "unknown"
    became = f"{old} → {change.new.outcome if change.new else 'gone'}"
    what = list(map(number_change_words, change.numbers)) or [became]
    note = "; ".join(filter(None, (*what, *causes_of(change), change.why)))
    if entry := entries.get((change.name, label)):
        return link_to(entry, note)
    return CellLink(name=one_line(change.name, NAME), label=one_line(label, NAME), href="", note=note)


def hang_groups(grid: Grid) -> list[CellGroup]:
    """Return what hangs, cells that are stuck at one stage together: the unexpected first, then the most common."""
    hanging = (entry for entry in grid.entries if entry.cell.outcome is Outcome.HANG)
    groups = []
    for entries in grouped(hanging, lambda entry: _NUMBER.sub("N", _stage_and_summary(entry)[0])).values():
        stage, summary = _stage_and_summary(entries[0])
        unexpected = sum(entry.is_unexpected for entry in entries)
        group = CellGroup(
            title=one_line(stage, WHAT),
            more=one_line(summary.removeprefix(stage).removeprefix("; "), WHAT),
            links=tuple(map(link_to, entries[:NAMED])),
            count=len(entries),
            kind="unexpected" if unexpected else "",
            note=f"{unexpected} unexpected" if unexpected else "expected",
        )
        groups.append((-unexpected, group))
    return [group for _, group in sorted(groups, key=lambda pair: (pair[0], -pair[1].count))]


def _stage_and_summary(entry: GridEntry) -> tuple[str, str]:
    """Return where a hung cell is stuck; the same in a sentence, with who waits for whom."""
    attempt = cell_text.representative_attempt(entry.cell)
    diagnosis = (attempt.diagnosis if attempt else None) or Diagnosis()
    summary = diagnosis.summary or entry.cell.what or "no stacks were taken"
    return diagnosis.place or summary, summary


def recommendations(
    grid: Grid, facts: RunFacts, changes: Changes, called: CommandPrefix
) -> tuple[list[Recommendation], int]:
    """Return what to do, for the cells that need it most, and how many cells there are that need something.

    Regressions and unexpected cells come first; where there is neither, a known failure of each kind.
    """
    worse = {key: change for key, change in changes.items() if change.change in WORSE}

    def urgency(entry: GridEntry) -> int:
        change = worse.get(entry.key)
        if change and change.change is ChangeKind.REGRESSION:
            return 0
        if entry.is_unexpected and entry.cell.is_red:
            return 1
        return 2 if change else 3

    red = [entry for entry in grid.entries if entry.cell.is_red or entry.is_unexpected]
    red.sort(key=lambda entry: (urgency(entry), entry.cell.outcome is not Outcome.HANG))
    needing = [entry for entry in red if urgency(entry) < 3 or entry.is_unexpected]
    kinds = grouped(
        needing or red, lambda entry: (entry.cell.outcome, _NUMBER.sub("N", entry.cell.signature or entry.row))
    )
    chosen = [entries[0] for entries in kinds.values()][:RECOMMENDED]
    return [_recommendation(entry, worse.get(entry.key), facts, called) for entry in chosen], len(needing)


def _recommendation(
    entry: GridEntry, change: CellChange | None, facts: RunFacts, called: CommandPrefix
) -> Recommendation:
    cell, environment = entry.cell, entry.column.environment
    test = WrongTest.of(cell, facts.stored.result, called)
    steps = list(test.steps())
    if facts.comparison and facts.before and change and (before := _before(change, facts.before)):
        days = (facts.comparison.old.started[:10], facts.comparison.new.started[:10])
        search = cell_text.bisect_between_command(cell.runnable, before, environment, days, called("bisect"))
        steps = [NextStep("finds what changed it", search)] if search else steps
    steps += [NextStep("runs it again", cell_text.rerun_command(cell, environment, called("matrix")))]
    steps += [NextStep(WHY, cell_text.in_shell(called("explain"), cell.runnable))] if test.passing or change else []
    what = _stage_and_summary(entry)[1] if cell.outcome is Outcome.HANG else cell_text.summary(cell)
    return Recommendation(
        link=link_to(entry),
        what=one_line(what, WHAT),
        why=str(change.change) if change else "unexpected" if entry.is_unexpected else "expected",
        outcome=cell.outcome,
        commands=tuple({one_line(step.command, 4 * WHAT): step.words for step in steps if step.command}.items()),
        advice=tuple(one_line(step.words, WHAT) for step in steps if not step.command),
    )


def _before(change: CellChange, before: Result) -> Environment | None:
    """Return the environment in which a regression still passed."""
    if change.change is not ChangeKind.REGRESSION or change.old is None:
        return None
    return next((each for each in before.environments if each.label == change.old.environment), None)
