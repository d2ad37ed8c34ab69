"""A run as one HTML page that needs nothing else: no network, no files beside it.

The page holds two JSON texts for templates/page.js: an index of every cell for the filters, which is read at once, and
the details of cells (details.py). In both, keys that say nothing are left out.
"""

from __future__ import annotations

import base64
import hashlib
from collections import Counter
from collections.abc import Collection
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import jinja2
from markupsafe import Markup

from whichtorch.model import Outcome
from whichtorch.records.compare.comparison import ChangeKind
from whichtorch.reports import cell_text
from whichtorch.reports.case_text import case_blocks
from whichtorch.reports.document import is_link, one_line, plain
from whichtorch.reports.page import highlights, pictures
from whichtorch.reports.page.details import details_of, encoded
from whichtorch.reports.page.grid import NAME, WHAT, Grid, GridEntry, GridRow, grid_of
from whichtorch.reports.stored_run_text import CHANGED, environment_items
from whichtorch.reports.table import incomplete, unusable_items

if TYPE_CHECKING:
    from whichtorch.reports.cell_text import CommandPrefix
    from whichtorch.reports.page.highlights import Changes
    from whichtorch.reports.run_facts import RunFacts

FIXED, PER_CELL = 1_000_000, 1_000  # bytes that a page may take

_TEMPLATES = Path(__file__).parent / "templates"
_FLAGS = {  # name and meaning; the bit of each in a cell's flags is its position
    "unexpected": "not what the scenario's header expects",
    "changed": "better or worse than in the earlier run",
    "flaky": "attempts disagree",
    "doubted": "ended well, but not known to have done what it declares",
    "boundary": "red before and passing from here on, or the other way round",
}
_DIGITS = "0123456789abcdefghijklmnopqrstuv"  # one for each combination of flags
_DETAILS = "<!-- details -->"  # where they go: no text from a run comes into a page with such brackets


def page(facts: RunFacts, called: CommandPrefix) -> str:
    """Return the page: what changed, what hangs and what to do, then the grid, whose cells open.

    It takes at most FIXED bytes and PER_CELL for each cell; what attempts wrote is cut to that, the least important
    first. `called` says how the user calls a command.
    """
    result = facts.stored.result
    grid = grid_of(result)
    limit = FIXED + PER_CELL * len(result.cells)
    changes: Changes = {
        (change.name, change.new.environment): change
        for change in (facts.comparison.cells if facts.comparison else ())
        if change.new and change.change is not ChangeKind.STILL_PASSING
    }
    details = details_of(facts.stored, grid, changes, called, limit)
    before, _, after = _shell(facts, grid, changes, called).partition(_DETAILS)
    budget = limit - len((before + "\n".join(details.lines(0)) + after).encode())
    return before + "\n".join(details.lines(budget) if budget >= 0 else details.least()) + after


@cache
def _template() -> jinja2.Template:
    """Return what makes pages; whatever text it is given is made fit to be shown."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    return environment.get_template("index.html.jinja")


def _shell(facts: RunFacts, grid: Grid, changes: Changes, called: CommandPrefix) -> str:
    """Return the page with a mark where the details go."""
    result, comparison = facts.stored.result, facts.comparison
    cells = Counter(cell.outcome for cell in result.cells)
    counts = [(outcome, cells[outcome]) for outcome in Outcome if cells[outcome]]
    not_passed = [pair for pair in counts if pair[0] is not Outcome.PASS]
    changed_cells = {key for key, change in changes.items() if change.change in CHANGED}
    kinds = Counter(change.change for change in comparison.cells) if comparison else Counter()
    rest = [f"{kinds[kind]} {kind}" for kind in ChangeKind if kind not in CHANGED and kinds[kind]]
    recommendations, needing = highlights.recommendations(grid, facts, changes, called)
    menus = [("tag", "tag", sorted({tag for row in grid.rows for tag in _tags(row)}))]
    menus += [(axis, title, grid.values(axis)) for axis, title in grid.axes.items()]
    index, flag_counts = _index(grid, changed_cells)
    flags = [(name, flag_counts[name], meaning) for name, meaning in _FLAGS.items() if flag_counts[name]]
    script = (_TEMPLATES / "page.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    name_length = min(66, max((len(row.short) for row in grid.rows), default=0))
    title_length = min(24, max((len(column.title) for column in grid.columns), default=0))
    return _template().render(
        run=result.run,
        took=_duration(result.run.seconds),
        unexpected=sum(entry.is_unexpected for entry in grid.entries),
        worst=sorted(not_passed, key=lambda pair: not pair[0].is_red),
        facts=facts,
        notices=list(unusable_items(result))[: highlights.MOST_BOUNDARIES],
        environments=list(environment_items(comparison)) if comparison else [],
        grid=grid,
        name_width=round(0.51 * max(24, name_length) + 1.2, 1),  # rem
        head_height=round(0.47 * title_length + 1, 1),  # rem
        moment=_moment,
        outcomes=list(Outcome),
        counts=counts,
        flags=flags,
        menus=[menu for menu in menus if len(menu[2]) > 1],
        changed_cells=changed_cells,
        rest=", ".join(rest),
        highlights=highlights,
        missing=incomplete(result),
        pictures=pictures,
        case_blocks=case_blocks,
        kind=lambda part: type(part).__name__,
        is_link=is_link,
        recommendations=recommendations,
        needing=needing,
        link_name=_link_name,
        style=(_TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script=script,
        script_hash=f"sha256-{digest}",
        index=encoded(index),
        details=_DETAILS,
    )  # fmt: skip


def _index(grid: Grid, changed_cells: Collection[tuple[str, str]]) -> tuple[dict[str, object], Counter[str]]:
    """Return what filters need to know of every cell, and how many cells have each flag.

    `changed_cells` are those that are better or worse than before.
    """
    flag_counts: Counter[str] = Counter()
    texts: dict[str, int] = {}  # by text, the index under which rows name it
    rows = [_index_row(row, changed_cells, texts, flag_counts) for row in grid.rows]
    columns = []
    group = -1
    for column in grid.columns:
        group += column.opens
        axes = {axis: plain(getattr(column.environment, axis)) for axis in grid.axes}
        columns.append({"label": column.label, "group": group, **axes})
    index = {
        "columns": columns,
        "rows": rows,
        "what": list(texts),
        "outcomes": {outcome.row.letter: outcome.value for outcome in Outcome},
        "red": "".join(outcome.row.letter for outcome in Outcome if outcome.is_red),
        "total": sum(1 for _ in grid.entries),
    }
    return index, flag_counts


def _index_row(
    row: GridRow, changed_cells: Collection[tuple[str, str]], texts: dict[str, int], flag_counts: Counter[str]
) -> dict[str, object]:
    """Return a row of the index: a letter and a digit of flags for each cell, and by column what few cells have."""
    entries = [entry for entry in row.entries if entry]
    flags = []
    for entry in row.entries:
        is_set = _flags(entry, entry.key in changed_cells) if entry else {}
        flag_counts.update(is_set)
        flags.append(sum(flag << position for position, flag in enumerate(is_set.values())))
    summary = texts.setdefault(row.summary, len(texts)) if row.summary else ""
    what = {entry.column.index: one_line(text, WHAT) for entry in entries if (text := _searched_text(entry))}
    facts = {
        "name": row.name,
        "letters": "".join(entry.letter if entry else "-" for entry in row.entries),
        "seconds": max((round(entry.cell.seconds, 1) for entry in entries), default=0),  # of the slowest cell
        "summary": summary,
        "tags": _tags(row),
        "flags": "".join(_DIGITS[bits] for bits in flags) if any(flags) else "",
        "what": {column: texts.setdefault(text, len(texts)) for column, text in what.items()},
        "flaky": {entry.column.index: entry.cell.flaky for entry in entries if entry.cell.flaky},
    }
    return {name: value for name, value in facts.items() if value not in ("", [], {})}


def _tags(row: GridRow) -> list[str]:
    return [one_line(tag, NAME) for tag in row.scenario.tags] if row.scenario else []


def _searched_text(entry: GridEntry) -> str | None:
    """Return what a cell can be found by besides its name."""
    cell = entry.cell
    return None if cell.outcome is Outcome.PASS and not entry.is_unexpected else cell_text.summary(cell, "")


def _flags(entry: GridEntry, is_changed: bool) -> dict[str, bool]:
    cell = entry.cell
    values = (entry.is_unexpected, is_changed, bool(cell.flaky), cell.is_doubted, entry.is_boundary)
    return dict(zip(_FLAGS, values, strict=True))


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


def _moment(started: str) -> str:
    """Return a moment as people write it; another text unchanged."""
    try:
        return f"{datetime.fromisoformat(started).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    except ValueError:
        return started
