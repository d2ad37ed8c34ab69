"""What a reader wants to know first: what changed, what hangs, what to do."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from matrix.compare.comparison import ChangeKind
from matrix.explain.explanation import verb
from matrix.model import Diagnosis, Outcome
from reports import rerun_commands
from reports.cell_text import speaker
from reports.comparison_text import alike, changes_words
from reports.page.grid import NAME, WHAT, is_link
from reports.plain import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matrix.compare.comparison import CellChange, Comparison
    from matrix.model import Environment, Result
    from reports.page.grid import Column, Grid, GridRow, Square

NAMED = 12  # cells of one list that are linked; more are counted
TOLD = 8  # groups of hangs
ADVISED = 5  # cells whose commands stand on top; those of the others are in their details

_NUMBER = re.compile(r"\d+")
_TOLD_FIRST = (ChangeKind.REGRESSION, ChangeKind.NEW_FAILURE, ChangeKind.DIFFERENT, ChangeKind.FIXED)
TITLES = {  # singular, plural
    ChangeKind.REGRESSION: (
        "regression: passed before, and does not now",
        "regressions: passed before, and do not now",
    ),
    ChangeKind.NEW_FAILURE: ("new failure: nothing was known of it", "new failures: nothing was known of them"),
    ChangeKind.DIFFERENT: (
        "different failure: failed before, in another way",
        "different failures: failed in another way",
    ),
    ChangeKind.FIXED: ("fixed", "fixed"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A cell to jump to."""

    name: str
    label: str
    href: str
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Cells of which the same is said."""

    title: str
    links: tuple[Link, ...]
    count: int
    kind: str = ""  # for the page's colours
    note: str = ""
    more: str = ""  # who waits for whom


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A cell with the commands that help with it."""

    link: Link
    what: str
    why: str  # it is chosen
    outcome: Outcome
    commands: tuple[tuple[str, str], ...]  # what each does, and the command


def link_to(row: GridRow, column: Column, note: str = "") -> Link:
    """Return the link that opens a cell."""
    href = "#cell=" + quote(f"{row.name}@{column.label}", safe="/@,[]:")
    return Link(name=row.name, label=column.label, href=href, note=one_line(note, WHAT))


def _squares(grid: Grid) -> Iterator[tuple[GridRow, Square]]:
    for row in grid.rows:
        for square in row.squares:
            if square is not None:
                yield row, square


def changed(grid: Grid, comparison: Comparison) -> list[Group]:
    """Return what became of cells since the earlier run, the worst first; what is as it was is left out."""
    places = {
        (square.cell.name, grid.columns[square.column].environment.label): (row, square)
        for row, square in _squares(grid)
    }
    groups = []
    for change in _TOLD_FIRST:
        found = comparison.of(change)
        if not found:
            continue
        links = [_change_link(one, places, grid) for one in found[:NAMED]]
        title = f"{len(found)} {TITLES[change][len(found) > 1]}"
        groups.append(Group(title=title, links=tuple(links), count=len(found), kind=change.value.replace(" ", "-")))
    return groups


def _change_link(one: CellChange, places: dict[tuple[str, str], tuple[GridRow, Square]], grid: Grid) -> Link:
    side = one.new or one.old
    assert side is not None
    old, new = (one.old.outcome if one.old else "unknown"), (one.new.outcome if one.new else "gone")
    notes = [f"{old} → {new}"]
    notes += ["the script changed, too"] if one.script_changed else []
    notes += [one.why] if one.why else []
    note = "; ".join(notes)
    place = places.get((one.name, side.environment))
    if place is None:
        return Link(name=one_line(one.name, NAME), label=one_line(side.environment, NAME), href="", note=note)
    return link_to(place[0], grid.columns[place[1].column], note)


def rest_of(comparison: Comparison) -> str:
    """Return in words how many cells are of the kinds that `changed` leaves out."""
    counts = Counter(one.change for one in comparison.cells)
    return ", ".join(f"{counts[kind]} {kind}" for kind in ChangeKind if kind not in _TOLD_FIRST and counts[kind])


def environment_changes(comparison: Comparison) -> list[Group]:
    """Return which environments are not what they were, those that changed alike together."""
    return [
        Group(
            title=one_line(changes_words(group[0]), 4 * WHAT),
            links=tuple(
                Link(
                    name=one_line(one.new, NAME),
                    label="",
                    href=one.commits if one.commits and is_link(one.commits) else "",
                )
                for one in group[:NAMED]
            ),
            count=len(group),
        )
        for group in alike(comparison.environments)
    ]


def hanging(grid: Grid) -> list[Group]:
    """Return what hangs, cells that are stuck in one place together: the unexpected first, then the most common."""
    found: dict[str, list[tuple[GridRow, Square]]] = {}
    for row, square in _squares(grid):
        if square.cell.outcome is Outcome.HANG:
            found.setdefault(_NUMBER.sub("N", place_of(square)), []).append((row, square))
    ordered = sorted(found.values(), key=lambda those: (-sum(one.is_unexpected for _, one in those), -len(those)))
    groups = []
    for those in ordered:
        unexpected = sum(square.is_unexpected for _, square in those)
        groups.append(
            Group(
                title=one_line(place_of(those[0][1]), WHAT),
                more=one_line(stage(those[0][1]).removeprefix(place_of(those[0][1])).removeprefix("; "), WHAT),
                links=tuple(link_to(row, grid.columns[square.column]) for row, square in those[:NAMED]),
                count=len(those),
                kind="unexpected" if unexpected else "",
                note=f"{unexpected} unexpected" if unexpected else "expected",
            )
        )
    return groups


def stage(square: Square) -> str:
    """Return where a hung cell is stuck and who waits for whom, in a sentence."""
    return _diagnosis(square).summary or square.cell.what or "no stacks were taken"


def place_of(square: Square) -> str:
    """Return where a hung cell is stuck."""
    return _diagnosis(square).place or stage(square)


def _diagnosis(square: Square) -> Diagnosis:
    attempt = speaker(square.cell)
    return (attempt.diagnosis if attempt else None) or Diagnosis()


def advice(
    grid: Grid, result: Result, comparison: Comparison | None, called: Callable[[str], str]
) -> tuple[list[Advice], int]:
    """Return what to do, for the cells that need it most, and how many cells there are that need something.

    Regressions and what nobody expects first; where there is neither, known hangs and failures, one of each place.
    """
    changes = {
        (one.name, one.new.environment): one
        for one in (comparison.cells if comparison else ())
        if one.new and one.change in {ChangeKind.REGRESSION, ChangeKind.NEW_FAILURE, ChangeKind.DIFFERENT}
    }

    def urgency(pair: tuple[GridRow, Square]) -> tuple[int, int]:
        square = pair[1]
        change = changes.get((square.cell.name, grid.columns[square.column].environment.label))
        is_regression = change is not None and change.change is ChangeKind.REGRESSION
        ranks = (is_regression, square.is_unexpected and square.cell.outcome.is_red, change is not None)
        return (ranks.index(True) if any(ranks) else len(ranks)), -(square.cell.outcome is Outcome.HANG)

    red = sorted((pair for pair in _squares(grid) if pair[1].cell.outcome.is_red or pair[1].is_unexpected), key=urgency)
    needing = [pair for pair in red if urgency(pair)[0] < 3 or pair[1].is_unexpected]
    chosen: list[tuple[GridRow, Square]] = []
    places: set[tuple[Outcome, str]] = set()
    for row, square in needing or red:
        place = (square.cell.outcome, _NUMBER.sub("N", square.cell.signature or row.name))
        if place not in places:
            places.add(place)
            chosen.append((row, square))
    advised = [
        _advice(
            row, square, grid, result, comparison, called,
            changes.get((square.cell.name, grid.columns[square.column].environment.label)),
        )
        for row, square in chosen[:ADVISED]
    ]  # fmt: skip
    return advised, len(needing)


def _advice(
    row: GridRow,
    square: Square,
    grid: Grid,
    result: Result,
    comparison: Comparison | None,
    called: Callable[[str], str],
    change: CellChange | None,
) -> Advice:
    column = grid.columns[square.column]
    cell, environment = square.cell, column.environment
    found = [("run it again", rerun_commands.rerun(cell, environment, called("matrix")))]
    before = _before(environment, change, comparison, result) if change and comparison else None
    if comparison is not None and before is not None:
        days = (comparison.old.started[:10], comparison.new.started[:10])
        searched = rerun_commands.bisect_between(cell.name, before, environment, days, called("bisect"))
    else:
        searched = rerun_commands.bisect(cell, environment, called("bisect"))
    found += [("find what changed it", searched)] if searched else []
    found.append(("ask why", rerun_commands.explain(cell, called("explain"))))
    why = str(change.change) if change else "unexpected" if square.is_unexpected else "expected"
    what = stage(square) if cell.outcome is Outcome.HANG else ": ".join(filter(None, (cell.what, cell.message)))
    return Advice(
        link=link_to(row, column),
        what=one_line(what or cell.reason or verb(cell.outcome), WHAT),
        why=why,
        outcome=cell.outcome,
        commands=tuple((title, one_line(command, 4 * WHAT)) for title, command in found),
    )


def _before(environment: Environment, change: CellChange, comparison: Comparison, result: Result) -> Environment | None:
    """Return the environment in which a regression still passed, as far as the comparison tells."""
    if change.change is not ChangeKind.REGRESSION or change.old is None:
        return None
    changed = next((one for one in comparison.environments if one.new == environment.label), None)
    if changed is None:
        return next((one for one in result.environments if one.label == change.old.environment), None)
    old = {name: old for name, (old, _) in changed.packages.items()}
    packages = {name: version for name, version in (environment.packages | old).items() if version is not None}
    torch = old.get("torch") or environment.torch
    return environment.model_copy(update={"torch": torch, "packages": packages})


def incomplete(result: Result) -> str:
    """Return why cells are missing, if they are."""
    run = result.run
    if result.is_complete:
        return ""
    why = "it was interrupted" if run.interrupted else "" if run.ended else "it has not come to its end"
    missing = run.planned - len(result.cells)
    how_many = f"{missing} of {run.planned} planned cells are missing" if missing > 0 else "cells may be missing"
    return ": ".join(filter(None, (why, how_many)))


def labelled_links(pairs: Sequence[tuple[GridRow, Square]], grid: Grid) -> tuple[Link, ...]:
    """Return links to cells."""
    return tuple(link_to(row, grid.columns[square.column]) for row, square in pairs[:NAMED])
