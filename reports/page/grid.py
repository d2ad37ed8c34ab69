"""A run as a grid: scenarios by family down, environments by version of torch across, and where a row turns."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from matrix.compare.histories import age
from matrix.diagnosis.sameness import different
from matrix.explain.explanation import verb
from matrix.model import Outcome
from reports.shown_text import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matrix.model import Cell, Environment, Result, Scenario

LETTERS = {
    Outcome.PASS: "p",
    Outcome.VACUOUS: "v",
    Outcome.FAIL: "F",
    Outcome.HANG: "H",
    Outcome.SLOW: "s",
    Outcome.CRASH: "C",
    Outcome.OOM: "O",
    Outcome.SKIP: "n",
    Outcome.UNBUILDABLE: "u",
    Outcome.BROKEN: "b",
    Outcome.ERROR: "e",
}
AXES = ("torch", "build", "python", "config")
WORDS_FIT = 12  # columns up to which a cell has room for its word; in a wider grid it is a letter
NAME = 200  # characters of a name that are shown
WHAT = 300  # characters of a signature or a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """An environment of the grid."""

    environment: Environment
    label: str  # unique in the grid
    title: str  # what tells it from others of its version; "" where nothing does
    opens: bool  # it is the first of its version

    @property
    def axes(self) -> dict[str, str]:
        """What it can be filtered by."""
        environment = self.environment
        return {
            "torch": plain(environment.torch),
            "build": plain(environment.build),
            "python": plain(environment.python),
            "config": plain(environment.config),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Square:
    """A cell in the grid."""

    cell: Cell
    column: int
    is_different: bool  # fails otherwise than most of its row
    turns: bool  # the neighbouring version of the same build, Python and config came to the opposite
    footnote: int | None  # number of the known issue

    @property
    def letter(self) -> str:
        """The outcome in one character, a capital where it is red."""
        return LETTERS[self.cell.outcome]

    @property
    def is_unexpected(self) -> bool:
        """True for what the scenario's header does not expect."""
        return not self.cell.expected and not self.cell.outcome.is_prevented

    @property
    def word(self) -> str:
        """The outcome in one word, in capitals where it is red."""
        return self.cell.outcome.word

    @property
    def marks(self) -> str:
        """What stands behind letter or word, as in the table of the terminal."""
        return ("~" if self.is_different else "") + ("!" if self.is_unexpected else "")

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
    squares: tuple[Square | None, ...]  # by column
    turning: str  # where it turns from red to passing or back, in words

    @property
    def summary(self) -> str:
        """What the header says that it is."""
        return one_line(self.scenario.summary, NAME) if self.scenario else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The rows of one folder of scenarios."""

    name: str
    rows: tuple[GridRow, ...]

    @property
    def counts(self) -> list[tuple[Outcome, int]]:
        """How often each outcome that is not a pass occurs."""
        found = Counter(square.cell.outcome for row in self.rows for square in row.squares if square)
        return [(outcome, found[outcome]) for outcome in Outcome if found[outcome] and outcome is not Outcome.PASS]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footnote:
    """A known issue: a cell that is red as its scenario's header expects."""

    number: int
    scenario: str
    summary: str
    why: str
    links: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A version of torch from which on some tests pass, or do not."""

    before: str
    after: str
    is_fix: bool
    squares: tuple[tuple[GridRow, Square], ...]  # the first after it


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """The whole table."""

    columns: tuple[Column, ...]
    families: tuple[Family, ...]
    footnotes: tuple[Footnote, ...]
    turns: tuple[Turn, ...]
    shared: str  # what all environments have in common

    @property
    def rows(self) -> list[GridRow]:
        """All rows, as they stand."""
        return [row for family in self.families for row in family.rows]

    @property
    def has_words(self) -> bool:
        """True where columns are few enough for words."""
        return len(self.columns) <= WORDS_FIT

    @property
    def groups(self) -> list[tuple[str, int]]:
        """The versions of torch with how many columns each has."""
        found: list[tuple[str, int]] = []
        for column in self.columns:
            if column.opens:
                found.append((plain(column.environment.torch), 1))
            else:
                found[-1] = (found[-1][0], found[-1][1] + 1)
        return found

    def values(self, axis: str) -> list[str]:
        """Return the values of an axis in the order of the columns."""
        return list(dict.fromkeys(column.axes[axis] for column in self.columns))


def is_link(text: str) -> bool:
    """Return whether a text may become a link: no scheme that could run anything."""
    return text.startswith(("https://", "http://")) and not any(letter.isspace() for letter in text)


def grid_of(result: Result) -> Grid:
    """Return the grid of a run."""
    columns = tuple(_columns(result.environments))
    by_hash = {scenario.source_hash: scenario for scenario in result.scenarios}
    by_name = {scenario.name: scenario for scenario in result.scenarios}
    cells: dict[str, dict[str, Cell]] = {}
    for cell in result.cells:
        cells.setdefault(cell.name, {})[cell.environment] = cell
    others = different(result.cells)
    footnotes: dict[tuple[str, str], Footnote] = {}
    turns: defaultdict[tuple[str, str, bool], list[tuple[GridRow, Square]]] = defaultdict(list)
    families: dict[str, list[GridRow]] = {}
    shown_names: Counter[str] = Counter()
    for name, mine in cells.items():
        one = next(iter(mine.values()))
        scenario = by_hash.get(one.source_hash) or by_name.get(one.scenario)
        changes = list(_changes(columns, mine))
        later = {change.at for change in changes}
        squares = tuple(
            Square(
                cell=found,
                column=place,
                is_different=(name, column.environment.id) in others,
                turns=place in later,
                footnote=_footnote(found, scenario, footnotes),
            )
            if (found := mine.get(column.environment.id))
            else None
            for place, column in enumerate(columns)
        )
        shown = one_line(name, NAME)
        shown_names[shown] += 1
        if shown_names[shown] > 1:  # two names that look alike once they are fit to be shown
            shown = f"{shown} ({shown_names[shown]})"
        family = one_line(one.scenario.rpartition("/")[0], NAME)
        row = GridRow(
            name=shown,
            short=shown.removeprefix(f"{family}/"),
            scenario=scenario,
            squares=squares,
            turning=_turning(changes, columns),
        )
        families.setdefault(family, []).append(row)
        for change in changes:
            square = squares[change.at]
            if square:
                turns[change.before, change.after, change.is_fix].append((row, square))
    return Grid(
        columns=columns,
        families=tuple(Family(name=name, rows=tuple(rows)) for name, rows in families.items()),
        footnotes=tuple(footnotes.values()),
        turns=tuple(
            Turn(before=before, after=after, is_fix=is_fix, squares=tuple(found))
            for (before, after, is_fix), found in sorted(turns.items(), key=lambda item: age(item[0][1]), reverse=True)
        ),
        shared=_shared(columns),
    )


def _columns(environments: Sequence[Environment]) -> Iterator[Column]:
    ordered = sorted(environments, key=lambda one: age(one.torch))  # stable: else as planned
    varying = [axis for axis in AXES[1:] if len({getattr(one, axis) for one in ordered}) > 1]
    titles = [" ".join(plain(getattr(one, axis)) for axis in varying) for one in ordered]
    places = Counter((one.torch, title) for one, title in zip(ordered, titles, strict=True))
    labels = Counter(one.label for one in ordered)
    before: str | None = None
    for one, title in zip(ordered, titles, strict=True):
        is_ambiguous = places[one.torch, title] > 1
        yield Column(
            environment=one,
            label=one_line(one.label, NAME) + (f"-{one_line(one.id, 12)}" if labels[one.label] > 1 else ""),
            title=f"{title} {one_line(one.id, 6)}".strip() if is_ambiguous else title,
            opens=one.torch != before,
        )
        before = one.torch


def _shared(columns: Sequence[Column]) -> str:
    """Return in words what all environments have in common."""
    found = []
    for axis, name in zip(AXES, ("torch", "build", "Python", "config"), strict=True):
        values = {column.axes[axis] for column in columns}
        if len(values) == 1:
            found.append(f"{name} {values.pop()}")
    return ", ".join(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Change:
    """Two neighbouring versions of one build, Python and config, of which one is red and one passes."""

    stream: str
    before: str
    after: str
    at: int  # column of the later one
    is_fix: bool
    verb: str


def _changes(columns: Sequence[Column], cells: Mapping[str, Cell]) -> Iterator[_Change]:
    streams: defaultdict[tuple[str, str, str], list[tuple[int, str, Cell]]] = defaultdict(list)
    for place, column in enumerate(columns):
        cell = cells.get(column.environment.id)
        if cell and (cell.outcome.is_red or (cell.outcome is Outcome.PASS and not cell.is_doubted)):
            one = column.environment
            minor = ".".join(one.python.split(".")[:2])
            streams[one.build, minor, one.config].append((place, plain(one.torch), cell))
    for stream, steps in streams.items():
        if len({torch for _, torch, _ in steps}) < len(steps):
            continue  # what differs between its environments is not the version alone
        for (_, before, old), (at, after, new) in pairwise(steps):
            if old.outcome.is_red != new.outcome.is_red:
                yield _Change(
                    stream=plain(", ".join(stream)),
                    before=before,
                    after=after,
                    at=at,
                    is_fix=old.outcome.is_red,
                    verb=verb(old.outcome if old.outcome.is_red else new.outcome),
                )


def _turning(changes: Sequence[_Change], columns: Sequence[Column]) -> str:
    """Return in words where a row turns: "fails up to 2.11.0, passes from 2.12.1 on"."""
    streams: dict[str, list[str]] = {}
    for change in changes:
        told = streams.setdefault(change.stream, [])
        first, last = (change.verb, "passes") if change.is_fix else ("passes", change.verb)
        head = f"{first} up to {change.before}, " if not told else ""
        told.append(f"{head}{last} from {change.after} on")
    where: dict[str, list[str]] = {}
    for stream, told in streams.items():
        where.setdefault(", ".join(told), []).append(stream)
    has_streams = len({(one.environment.build, one.environment.python, one.environment.config) for one in columns}) > 1
    return "; ".join(f"{told} ({'; '.join(found)})" if has_streams else told for told, found in where.items())


def _footnote(cell: Cell, scenario: Scenario | None, footnotes: dict[tuple[str, str], Footnote]) -> int | None:
    """Return the number of the known issue that a cell shows, a new one where it is the first to."""
    if not (cell.expected and cell.outcome.is_red):
        return None
    key = (cell.scenario, cell.known)
    if key not in footnotes:
        footnotes[key] = Footnote(
            number=len(footnotes) + 1,
            scenario=one_line(cell.scenario, NAME),
            summary=one_line(scenario.summary, WHAT) if scenario else "",
            why=one_line(cell.known, WHAT),
            links=tuple(link for link in (scenario.links if scenario else ()) if is_link(link)),
        )
    return footnotes[key].number
