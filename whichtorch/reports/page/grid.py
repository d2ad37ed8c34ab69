"""A run as a grid: scenarios by family down, environments by version of torch across, and where a row changes."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from whichtorch.base.grouping import grouped
from whichtorch.base.version_parsing import age
from whichtorch.failures.failure import different
from whichtorch.model import NO_PATCH, Cell, Environment, Outcome, Result, Scenario
from whichtorch.reports.document import is_link, one_line, plain
from whichtorch.reports.table import distinguishing_axes

WORDS_FIT = 12  # columns up to which a cell has room for its word; in a wider grid it is a letter
NAME = 200  # characters of a name that are shown
WHAT = 300  # characters of a signature or a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """An environment of the grid."""

    environment: Environment
    index: int
    label: str  # unique in the grid
    title: str  # what distinguishes it from others of its version; "" where nothing does
    opens: bool  # it is the first of its version


@dataclass(frozen=True, slots=True, kw_only=True)
class GridEntry:
    """A cell in the grid."""

    cell: Cell
    row: str  # name of its row
    column: Column
    is_different: bool  # fails otherwise than most of its row
    is_boundary: bool  # the neighboring version of the same build, Python and config has the opposite outcome
    footnote: int | None  # number of the known issue

    @property
    def key(self) -> tuple[str, str]:
        """What a comparison calls it: its name and the label of its environment."""
        return self.cell.name, self.column.environment.label

    @property
    def letter(self) -> str:
        """The outcome in one character, a capital where it is red."""
        return self.cell.outcome.row.letter

    @property
    def is_unexpected(self) -> bool:
        """True for what the scenario's header does not expect."""
        return not self.cell.expected and not self.cell.outcome.is_prevented

    @property
    def flaky(self) -> str:
        """`k/n` where attempts disagree."""
        return (self.cell.flaky or "").replace(" of ", "/")


@dataclass(frozen=True, slots=True, kw_only=True)
class GridRow:
    """A scenario and variant of the grid."""

    name: str  # unique in the grid, as shown
    short: str  # without the family
    scenario: Scenario | None
    entries: tuple[GridEntry | None, ...]  # by column
    boundary_words: str  # where it goes from red to passing or back

    @property
    def summary(self) -> str:
        """The summary in the scenario's header."""
        return one_line(self.scenario.summary, NAME) if self.scenario else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The rows of one folder of scenarios."""

    name: str
    rows: tuple[GridRow, ...]

    @property
    def counts(self) -> list[tuple[Outcome, int]]:
        """How often each outcome that is not a pass occurs."""
        counts = Counter(entry.cell.outcome for row in self.rows for entry in row.entries if entry)
        return [(outcome, counts[outcome]) for outcome in Outcome if counts[outcome] and outcome is not Outcome.PASS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footnote:
    """A known issue: a cell that is red as its scenario's header expects."""

    number: int
    scenario: str
    summary: str
    why: str
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionBoundary:
    """Two neighboring versions of torch: some tests pass in one and are red in the other."""

    before: str
    after: str
    is_fix: bool
    entries: tuple[GridEntry, ...]  # of the version after


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The whole table."""

    columns: tuple[Column, ...]
    families: tuple[Family, ...]
    footnotes: tuple[Footnote, ...]
    boundaries: tuple[VersionBoundary, ...]

    @property
    def rows(self) -> list[GridRow]:
        """All rows, in their order on the page."""
        return [row for family in self.families for row in family.rows]

    @property
    def entries(self) -> Iterator[GridEntry]:
        """All cells, row by row."""
        return (entry for row in self.rows for entry in row.entries if entry)

    @property
    def axes(self) -> dict[str, str]:
        """What tells its environments apart, for filters: fields and what they are called."""
        return distinguishing_axes(column.environment for column in self.columns)

    @property
    def shared(self) -> str:
        """What all environments have in common, in words."""
        values = {title: self.values(axis) for axis, title in self.axes.items()}
        return ", ".join(f"{title} {found[0]}" for title, found in values.items() if len(found) == 1)

    @property
    def has_words(self) -> bool:
        """True where columns are few enough for words."""
        return len(self.columns) <= WORDS_FIT

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The versions of torch with how many columns each has."""
        groups = groupby(self.columns, key=lambda column: column.environment.torch)
        return [(plain(torch), len(list(columns))) for torch, columns in groups]

    def values(self, axis: str) -> list[str]:
        """Return the values of an axis in the order of the columns."""
        return list(dict.fromkeys(plain(getattr(column.environment, axis)) for column in self.columns))


def grid_of(result: Result) -> Grid:
    """Return the grid of a run."""
    columns = tuple(_columns(result.environments))
    by_hash = {scenario.source_hash: scenario for scenario in result.scenarios}
    by_name = {scenario.name: scenario for scenario in result.scenarios}
    cells = {
        name: {cell.environment: cell for cell in own}
        for name, own in grouped(result.cells, lambda cell: cell.name).items()
    }
    others = different(result.cells)
    footnotes: dict[tuple[str, str], Footnote] = {}
    boundaries: list[tuple[_RowBoundary, GridEntry]] = []
    families: dict[str, list[GridRow]] = {}
    names: Counter[str] = Counter()
    for name, row_cells in cells.items():
        first = next(iter(row_cells.values()))
        scenario = by_hash.get(first.source_hash) or by_name.get(first.scenario)
        shown = one_line(name, NAME)
        names[shown] += 1  # two names may look alike once they are fit to be shown
        shown = f"{shown} ({names[shown]})" if names[shown] > 1 else shown
        row_boundaries = list(_row_boundaries(columns, row_cells))
        changing = {boundary.column for boundary in row_boundaries}
        entries = tuple(
            GridEntry(
                cell=cell,
                row=shown,
                column=column,
                is_different=(name, cell.environment) in others,
                is_boundary=column.index in changing,
                footnote=_footnote(cell, scenario, footnotes),
            )
            if (cell := row_cells.get(column.environment.id))
            else None
            for column in columns
        )
        family = one_line(first.scenario.rpartition("/")[0], NAME)
        short, boundary_words = shown.removeprefix(f"{family}/"), _boundary_words(row_boundaries, columns)
        row = GridRow(name=shown, short=short, scenario=scenario, entries=entries, boundary_words=boundary_words)
        families.setdefault(family, []).append(row)
        boundaries += [(boundary, entry) for boundary in row_boundaries if (entry := entries[boundary.column])]
    turns = grouped(boundaries, lambda pair: (pair[0].before, pair[0].after, pair[0].is_fix))
    newest_first = sorted(turns.items(), key=lambda item: age(item[0][1]), reverse=True)
    return Grid(
        columns=columns,
        families=tuple(Family(name=name, rows=tuple(rows)) for name, rows in families.items()),
        footnotes=tuple(footnotes.values()),
        boundaries=tuple(
            VersionBoundary(before=before, after=after, is_fix=is_fix, entries=tuple(entry for _, entry in pairs))
            for (before, after, is_fix), pairs in newest_first
        ),
    )


def _columns(environments: Sequence[Environment]) -> Iterator[Column]:
    ordered = sorted(environments, key=lambda environment: age(environment.torch))  # stable: else as planned
    axes = [axis for axis in distinguishing_axes(environments) if axis != "torch"]
    varying = [axis for axis in axes if len({getattr(environment, axis) for environment in ordered}) > 1]
    titles = [" ".join(plain(getattr(environment, axis)) for axis in varying) for environment in ordered]
    heads = Counter((environment.torch, title) for environment, title in zip(ordered, titles, strict=True))
    labels = Counter(environment.label for environment in ordered)
    before: str | None = None
    for index, (environment, title) in enumerate(zip(ordered, titles, strict=True)):
        is_ambiguous = heads[environment.torch, title] > 1
        suffix = f"-{one_line(environment.id, 12)}" if labels[environment.label] > 1 else ""
        yield Column(
            environment=environment,
            index=index,
            label=one_line(environment.label, NAME) + suffix,
            title=f"{title} {one_line(environment.id, 6)}".strip() if is_ambiguous else title,
            opens=environment.torch != before,
        )
        before = environment.torch


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowBoundary:
    """Two neighboring versions: a test is red in one and passes in the other, all else being the same."""

    stream: str  # build, Python, config, and the patch if there is one
    before: str
    after: str
    column: int  # of the later version
    is_fix: bool
    verb: str


def _row_boundaries(columns: Sequence[Column], cells: Mapping[str, Cell]) -> Iterator[_RowBoundary]:
    streams: defaultdict[tuple[str, ...], list[tuple[int, str, Outcome]]] = defaultdict(list)
    for column in columns:
        environment = column.environment
        cell = cells.get(environment.id)
        if cell and (cell.is_red or (cell.outcome is Outcome.PASS and not cell.is_doubted)):
            axes = environment.axes
            patch = () if environment.patch == NO_PATCH else (environment.patch,)
            step = column.index, plain(environment.torch), cell.outcome
            streams[axes["build"], axes["python"], axes["config"], *patch].append(step)
    for stream, steps in streams.items():
        if len({torch for _, torch, _ in steps}) < len(steps):
            continue  # its environments differ in more than the version
        for (_, before, old), (index, after, new) in pairwise(steps):
            if old.is_red != new.is_red:
                words, does = plain(", ".join(stream)), (old if old.is_red else new).row.verb
                yield _RowBoundary(stream=words, before=before, after=after, column=index, is_fix=old.is_red, verb=does)


def _boundary_words(boundaries: Sequence[_RowBoundary], columns: Sequence[Column]) -> str:
    """Return in words where a row goes from red to passing or back: "fails up to 2.11.0, passes from 2.12.1 on"."""
    parts: dict[str, list[str]] = {}
    for boundary in boundaries:
        first, last = (boundary.verb, "passes") if boundary.is_fix else ("passes", boundary.verb)
        head = "" if boundary.stream in parts else f"{first} up to {boundary.before}, "
        parts.setdefault(boundary.stream, []).append(f"{head}{last} from {boundary.after} on")
    streams = grouped(parts, lambda stream: ", ".join(parts[stream]))
    environments = [column.environment for column in columns]
    kinds = {(each.build, each.python, each.config, each.patch) for each in environments}
    return "; ".join(f"{text} ({'; '.join(names)})" if len(kinds) > 1 else text for text, names in streams.items())


def _footnote(cell: Cell, scenario: Scenario | None, footnotes: dict[tuple[str, str], Footnote]) -> int | None:
    """Return the number of the known issue that a cell shows, adding the issue where it is new."""
    if not (cell.expected and cell.is_red):
        return None
    key = (cell.scenario, cell.known)
    if key not in footnotes:
        footnotes[key] = Footnote(
            number=len(footnotes) + 1,
            scenario=one_line(cell.scenario, NAME),
            summary=one_line(scenario.summary, WHAT) if scenario else "",
            why=one_line(cell.known, WHAT),
            links=tuple(filter(is_link, scenario.links)) if scenario else (),
        )
    return footnotes[key].number
