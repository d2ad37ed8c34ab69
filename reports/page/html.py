"""A run as one HTML page that needs nothing else: no network, no files beside it."""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from matrix.compare.comparison import ChangeKind
from matrix.model import Outcome
from reports.bisection_text import answer_lines, cost, heading
from reports.page import pictures, story
from reports.page.cuts import encoded
from reports.page.details import Details, details_of
from reports.page.grid import AXES, LETTERS, NAME, WHAT, Grid, Square, grid_of, is_link
from reports.shown_text import one_line, plain
from reports.table import LEGEND

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matrix.bisect.bisection import Bisection
    from matrix.compare.comparison import CellChange, Comparison
    from matrix.compare.nights import Night
    from matrix.model import Result
    from matrix.records.stored_runs import StoredRun

FIXED, PER_CELL = 1_000_000, 1_000  # bytes that a page may take
MOST_TURNS = 8  # boundaries that are told; more are counted
MOST_CHANGED = {ChangeKind.REGRESSION, ChangeKind.NEW_FAILURE, ChangeKind.DIFFERENT, ChangeKind.FIXED}

_TEMPLATES = Path(__file__).parent / "templates"
_DETAILS = "<!-- details -->"  # where they go: no text from a run comes into a page with such brackets
_WORST_FIRST = sorted(set(Outcome) - {Outcome.PASS}, key=lambda one: (not one.is_red, list(Outcome).index(one)))
_UNEXPECTED, _CHANGED, _FLAKY, _DOUBTED, _TURNS = (1 << bit for bit in range(5))
_DIGITS = "0123456789abcdefghijklmnopqrstuv"


def page(
    stored: StoredRun,
    *,
    comparison: Comparison | None,
    nights: Sequence[Night],
    bisections: Sequence[Bisection],
    called: Callable[[str], str],
) -> str:
    """Return the page: what changed, what hangs and what to do, then the grid, whose cells open.

    It takes at most FIXED bytes and PER_CELL for each cell; what attempts wrote is cut to that, where it matters least
    first. `called` says how the user calls a command.
    """
    result = stored.result
    grid = grid_of(result)
    limit = FIXED + PER_CELL * len(result.cells)
    changes = _changes(comparison)
    details = details_of(stored, grid, changes, called, limit)
    shell = _environment().get_template("index.html.jinja").render(
        _words(result, grid, comparison, nights, bisections, called, changes), details=_DETAILS
    )  # fmt: skip
    before, _, after = shell.partition(_DETAILS)
    return before + _fitting(details, limit - len(before.encode()) - len(after.encode())) + after


def _fitting(details: Details, room: int) -> str:
    """Return the lines of the details, with as many texts as there is room for; without any facts if it must be."""
    bare = "\n".join(details.lines(0))
    left = room - len(bare.encode())
    return "\n".join(details.lines(left) if left >= 0 else details.least())


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_clean,
    )


def _clean(value: object) -> object:
    """Make every text fit to be shown on its way into the page."""
    return plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _changes(comparison: Comparison | None) -> dict[tuple[str, str], CellChange]:
    """Return by name and label what became of the cells that are there now."""
    found = (one for one in (comparison.cells if comparison else ()) if one.new)
    return {
        (one.name, one.new.environment): one for one in found if one.new and one.change is not ChangeKind.STILL_PASSING
    }


def _words(
    result: Result,
    grid: Grid,
    comparison: Comparison | None,
    nights: Sequence[Night],
    bisections: Sequence[Bisection],
    called: Callable[[str], str],
    changes: dict[tuple[str, str], CellChange],
) -> dict[str, Any]:
    """Return what the template is given."""
    counts = Counter(cell.outcome for cell in result.cells)
    unexpected = sum(square.is_unexpected for row in grid.rows for square in row.squares if square)
    changed_cells = {place for place, change in changes.items() if change.change in MOST_CHANGED}
    hanging = story.hanging(grid)
    advice, needing = story.advice(grid, result, comparison, called)
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    worst = [(outcome.value, counts[outcome]) for outcome in _WORST_FIRST if counts[outcome]]
    index = _index(grid, changed_cells)
    return {
        "run": result.run,
        "took": _duration(result.run.seconds),
        "headline": f"{unexpected} unexpected of {len(result.cells)}",
        "total": len(result.cells),
        "unexpected": unexpected,
        "worst": worst,
        "missing": story.incomplete(result),
        "notices": _notices(result),
        "grid": grid,
        "has_titles": any(column.title for column in grid.columns),
        "name_width": round(0.51 * min(66, max(24, 24, *(len(row.short) for row in grid.rows))) + 1.2, 1),
        "head_height": round(0.47 * min(24, max((len(column.title) for column in grid.columns), default=0)) + 1, 1),
        "moment": _moment,
        "letters": LETTERS,
        "meanings": LEGEND,
        "counts": [(outcome, counts[outcome]) for outcome in Outcome if counts[outcome]],
        "flags": _flag_counts(index),
        "menus": _menus(grid),
        "changed_cells": changed_cells,
        "comparison": comparison,
        "changed": story.changed(grid, comparison) if comparison else [],
        "rest": story.rest_of(comparison) if comparison else "",
        "environments": story.environment_changes(comparison) if comparison else [],
        "hanging": hanging,
        "hang_count": sum(group.count for group in hanging),
        "most_told": story.TOLD,
        "most_named": story.NAMED,
        "most_turns": MOST_TURNS,
        "advice": advice,
        "needing": needing,
        "turn_links": lambda turn: story.labelled_links(turn.squares, grid),
        "link_name": _link_name,
        "bisections": [_bisection(found) for found in bisections],
        "nights": pictures.hangs_over_nights(nights),
        "times": pictures.times(grid),
        "style": (_TEMPLATES / "page.css").read_text(encoding="utf-8"),
        "script": script,
        "script_hash": f"sha256-{digest}",
        "index": encoded(index),
    }


def _notices(result: Result) -> list[str]:
    """Return which environments could not be had: their cells say nothing about torch."""
    return [
        f"{one.label}: {one.outcome}: {one_line(one.reason or 'no reason is known', WHAT)}"
        for one in result.environments
        if one.outcome is not None
    ][:MOST_TURNS]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s"


def _link_name(link: str) -> str:
    """Return what a link is called: an issue by its number, else its host and the end of its path."""
    shown = link.split("://", 1)[1].rstrip("/")
    parts = shown.split("/")
    if parts[0] == "github.com" and len(parts) >= 5 and parts[3] in {"issues", "pull"}:
        return f"{parts[2]}#{parts[4]}"
    return one_line(shown, 60)


def _menus(grid: Grid) -> list[tuple[str, str, list[str]]]:
    """Return the filters of which there is something to choose."""
    tags = sorted({one_line(tag, NAME) for row in grid.rows if row.scenario for tag in row.scenario.tags})
    menus = [(axis, "Python" if axis == "python" else axis, grid.values(axis)) for axis in AXES]
    return [menu for menu in [("tag", "tag", tags), *menus] if len(menu[2]) > 1]


def _flag_counts(index: dict[str, Any]) -> list[tuple[str, int, str]]:
    flags = (
        ("unexpected", _UNEXPECTED, "not what the scenario's header expects"),
        ("changed", _CHANGED, "better or worse than in the earlier run"),
        ("flaky", _FLAKY, "attempts disagree"),
        ("doubted", _DOUBTED, "ended well, but not known to have done what it declares"),
        ("boundary", _TURNS, "red before and passing from here on, or the other way round"),
    )
    counts = Counter(digit for row in index["rows"] for digit in row.get("flags", ""))
    found = [
        (name, sum(count for digit, count in counts.items() if _DIGITS.index(digit) & bit), title)
        for name, bit, title in flags
    ]
    return [flag for flag in found if flag[1]]


def _index(grid: Grid, changed_cells: set[tuple[str, str]]) -> dict[str, Any]:
    """Return what filters need to know of every cell, in few bytes."""
    what: dict[str, int] = {}
    rows = []
    for row in grid.rows:
        facts: dict[str, Any] = {
            "name": row.name,
            "letters": "".join(square.letter if square else "-" for square in row.squares),
            "seconds": max((round(square.cell.seconds, 1) for square in row.squares if square), default=0),
        }
        if row.summary:
            facts["summary"] = what.setdefault(row.summary, len(what))
        if row.scenario and row.scenario.tags:
            facts["tags"] = [one_line(tag, NAME) for tag in row.scenario.tags]
        flags = [_flags(square, grid, changed_cells) if square else 0 for square in row.squares]
        if any(flags):
            facts["flags"] = "".join(_DIGITS[one] for one in flags)
        told = {
            square.column: what.setdefault(one_line(text, WHAT), len(what))
            for square in row.squares
            if square and (text := _said(square))
        }
        if told:
            facts["what"] = told
        flaky = {square.column: square.cell.flaky for square in row.squares if square and square.cell.flaky}
        if flaky:
            facts["flaky"] = flaky
        rows.append(facts)
    group = -1
    columns = []
    for column in grid.columns:
        group += column.opens
        columns.append({"label": column.label, "group": group} | column.axes)
    return {
        "columns": columns,
        "rows": rows,
        "what": list(what),
        "outcomes": {letter: outcome.value for outcome, letter in LETTERS.items()},
        "total": sum(square is not None for row in grid.rows for square in row.squares),
    }


def _said(square: Square) -> str | None:
    """Return what a cell can be found by besides its name."""
    cell = square.cell
    if cell.outcome is Outcome.PASS and not square.is_unexpected:
        return None
    return ": ".join(filter(None, (cell.what, cell.message))) or cell.reason


def _flags(square: Square, grid: Grid, changed_cells: set[tuple[str, str]]) -> int:
    label = grid.columns[square.column].environment.label
    return (
        _UNEXPECTED * square.is_unexpected
        | _CHANGED * ((square.cell.name, label) in changed_cells)
        | _FLAKY * bool(square.cell.flaky)
        | _DOUBTED * square.cell.is_doubted
        | _TURNS * square.turns
    )


def _moment(started: str) -> str:
    """Return a moment as people write it; what is none as it is."""
    try:
        return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return started


def _bisection(found: Bisection) -> dict[str, Any]:
    told = [line.strip() for line in answer_lines(found)]
    return {
        "heading": heading(found),
        "lines": [*(line for line in told if not line.startswith("commits: ")), *found.reasons, cost(found)],
        "commits": [
            (f"commits between {one.from_} and {one.to}", one.commits)
            for one in found.boundaries
            if one.commits and is_link(one.commits)
        ],
        "line": pictures.version_line(found),
        "command": found.command,
    }
