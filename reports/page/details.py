"""What a page knows of each cell beyond the grid, small enough for thousands of them.

A line of JSON for what cells share, then one for each row of the grid: a page reads the line of a cell when it is
opened. Facts come first; what attempts wrote is cut to the room that is left, and what matters most gets it first.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from matrix.compare.comparison import ChangeKind
from matrix.compare.factors import ABSENT, AXES, Factors, factors_of
from matrix.explain.explanation import distance
from matrix.model import Attempt, Cell, Condition, Diagnosis, Outcome, cycle_sentences
from reports import rerun_commands
from reports.cell_text import speaker
from reports.page.cuts import SMALLEST, Excerpt, cost, encoded, excerpts, shares
from reports.page.grid import WHAT, Grid, GridRow, Square
from reports.plain import one_line, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from matrix.compare.comparison import CellChange
    from matrix.model import Environment
    from matrix.records.stored_runs import StoredRun

    Place = tuple[int, int]  # row and column of the grid

_CONFIG = "config."  # begins the facts of torch.__config__
NAME_HERE = "THE_CELL_HERE"  # stands in an environment's commands for the name of a cell
ATTEMPTS = 20  # that are told of one cell; more are counted
EDGES = 12  # of who waits for whom
DIFFERENCES = 12  # packages, and other facts, in which two environments differ; more are counted
PAIRS = 300  # of environments whose differences are told; of more only the axes
VALUE = 80  # characters of a fact: some fields hold a compiler's whole command line
ENVIRONMENTS = 0.25  # of a page's room that facts of environments may take
FEW_READ, MOST_READ = 2**12, 2**16  # bytes of each end of an output that are looked at

# How much a cell may take of the room for texts, in bytes, and all of its rank together.
_URGENT, _RED, _DOUBTED, _REST = range(4)
_EACH = {_URGENT: 48_000, _RED: 16_000, _DOUBTED: 6_000, _REST: 1_500}
_ALL = {_REST: 300_000}
_CHANGED = {ChangeKind.REGRESSION, ChangeKind.NEW_FAILURE, ChangeKind.DIFFERENT}

Changes = dict[tuple[str, str], "CellChange"]  # by name and label


class Strings:
    """Texts that are written once and named by their place."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}

    def place(self, text: str) -> int:
        """Return where a text stands, putting it there if need be."""
        return self.texts.setdefault(text, len(self.texts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What is known of cells, before texts are added."""

    shared: dict[str, Any]
    rows: list[dict[str, Any]]
    texts: dict[Place, list[Excerpt]]
    ranks: dict[Place, int]

    def lines(self, room: int) -> Iterator[str]:
        """Yield the lines, with texts of at most `room` bytes in all."""
        fitted = self._fitted(room)
        yield encoded(self.shared)
        for number, row in enumerate(self.rows):
            cells = {
                column: facts | ({"texts": texts} if (texts := fitted.get((number, column))) else {})
                for column, facts in row["cells"].items()
            }
            yield encoded(row | {"cells": cells})

    def least(self) -> Iterator[str]:
        """Yield the lines without what is known of cells, for a run whose names alone fill a page."""
        yield encoded(self.shared | {"pairs": {}, "strings": []})
        yield from (encoded({"cells": {}}) for _ in self.rows)

    def _fitted(self, room: int) -> dict[Place, list[list[Any]]]:
        fitted: dict[Place, list[list[Any]]] = {}
        waiting = sum(self.ranks[place] != _REST for place in self.texts)
        for rank in (_URGENT, _RED, _DOUBTED, _REST):
            places = [place for place in self.texts if self.ranks[place] == rank]
            waiting -= len(places) if rank != _REST else 0
            kept = min(room // 2, waiting * (SMALLEST + 2 * _OVERHEAD))  # so that no red cell goes without
            wanted = [[one.wanted + _OVERHEAD for one in self.texts[place]] for place in places]
            most = min(room - kept, _ALL.get(rank, room))
            given = shares([min(_EACH[rank], sum(sizes)) for sizes in wanted], most)
            for place, sizes, share in zip(places, wanted, given, strict=True):
                is_enough = share >= sum(sizes)
                served = len(sizes) if is_enough else max(1, share // (SMALLEST + _OVERHEAD))  # the rest tells nothing
                parts = [
                    [one.title, text, int(one.is_folded)]
                    for one, part in zip(self.texts[place], shares(sizes[:served], share), strict=False)
                    if (text := one.fitting(part - _OVERHEAD))
                ]
                if parts:
                    fitted[place] = parts
                    room -= len(encoded({"texts": parts}).encode())
        return fitted


_OVERHEAD = 60  # bytes that a text takes besides itself: title, brackets, its share of the list's name


def details_of(
    stored: StoredRun,
    grid: Grid,
    changes: Mapping[tuple[str, str], CellChange],
    called: Callable[[str], str],
    room: int,
) -> Details:
    """Return what is known of all cells; `room` is what the page may take, all told."""
    factors = [factors_of(column.environment) for column in grid.columns]
    near = _Nearest(factors)
    rows: list[dict[str, Any]] = []
    told: list[tuple[Place, Cell]] = []
    ranks: dict[Place, int] = {}
    strings = Strings()
    for number, row in enumerate(grid.rows):
        cells: dict[int, dict[str, Any]] = {}
        for square in row.squares:
            if square is None:
                continue
            label = grid.columns[square.column].environment.label
            change = changes.get((square.cell.name, label))
            facts = _facts(square.cell, strings)
            if change is not None:
                facts["change"] = _change(change)
            if square.cell.outcome.is_red and (other := near.of(square, row)) is not None:
                facts["near"] = other
            cells[square.column] = facts
            ranks[number, square.column] = _rank(square, change)
            told.append(((number, square.column), square.cell))
        rows.append(_row(row) | {"cells": cells})
    few_passes = sum(rank == _REST for rank in ranks.values()) * _EACH[_REST] <= 4 * _ALL[_REST]
    wanted = [(place, cell) for place, cell in told if ranks[place] != _REST or few_passes]
    end = min(MOST_READ, max(FEW_READ, 2 * room // max(1, len(wanted))))
    texts = {place: found for place, cell in wanted if (found := _texts(stored, cell, end))}
    share = int(room * ENVIRONMENTS / max(1, len(grid.columns)))
    environments = [
        _environment(column.environment, one, strings, share, called)
        for column, one in zip(grid.columns, factors, strict=True)
    ]
    shared = {"environments": environments, "strings": list(strings.texts), "pairs": near.pairs, "here": NAME_HERE}
    return Details(shared=shared, rows=rows, texts=texts, ranks=ranks)


def _rank(square: Square, change: CellChange | None) -> int:
    cell = square.cell
    if cell.outcome.is_red:
        is_urgent = square.is_unexpected or cell.outcome is Outcome.HANG or (change and change.change in _CHANGED)
        return _URGENT if is_urgent else _RED
    is_doubted = cell.is_doubted or cell.outcome.is_prevented or square.is_unexpected or cell.outcome is Outcome.SLOW
    return _DOUBTED if is_doubted else _REST


def _row(row: GridRow) -> dict[str, Any]:
    full = next(square.cell.name for square in row.squares if square)
    quoted = shlex.quote(plain(full))
    facts: dict[str, Any] = {} if quoted == f"'{row.name}'" else {"quoted": quoted}
    return facts | ({"turning": row.turning} if row.turning else {})


def _texts(stored: StoredRun, cell: Cell, end: int) -> list[Excerpt]:
    attempt = speaker(cell)
    return list(excerpts(stored, attempt, end)) if attempt else []


def _facts(cell: Cell, strings: Strings) -> dict[str, Any]:
    """Return what is known of a cell; of a plain pass next to nothing. What many cells say is written once."""
    facts: dict[str, Any] = {"attempts": [_attempt(one) for one in cell.attempts[:ATTEMPTS]]}
    if len(cell.attempts) > ATTEMPTS:
        facts["more"] = len(cell.attempts) - ATTEMPTS
    said = {"reason": cell.reason, "message": cell.message, "signature": cell.signature, "known": cell.known}
    said["conflict"] = f"The runs that were merged disagree: {cell.conflict}" if cell.conflict else None
    facts |= {name: strings.place(one_line(text, WHAT)) for name, text in said.items() if text}
    if cell.conditions:
        facts["conditions"] = [
            [one.met, one_line(condition_words(one.condition), WHAT), one_line(one.seen, WHAT)]
            for one in cell.conditions
        ]
    attempt = speaker(cell)
    if attempt and (attempt.outcome is Outcome.HANG or attempt.diagnosis):
        facts["hang"] = _hang(attempt)
    return facts


def _attempt(attempt: Attempt) -> list[Any]:
    """Return an attempt as a list: outcome, seconds, CPU seconds, MB, and what is out of the ordinary."""
    odd: dict[str, Any] = {}
    if attempt.stopped_by != "exit":
        odd |= {"stopped": attempt.stopped_by, "limit": attempt.limit}
    if attempt.exit_code:
        odd["exit"] = attempt.exit_code
    if attempt.signal:
        odd["signal"] = one_line(attempt.signal, VALUE)
    if attempt.note:
        odd["note"] = one_line(attempt.note, WHAT)
    if attempt.survivors:
        odd["survivors"] = [one_line(name, VALUE) for name in attempt.survivors[:EDGES]]
    numbers = [round(number, 1) for number in (attempt.seconds, attempt.cpu_seconds, attempt.peak_rss_mb)]
    return [str(attempt.outcome), *numbers, *([odd] if odd else [])]


def _hang(attempt: Attempt) -> dict[str, Any]:
    """Return what kind of hang it is, at which stage, and who waits for whom with the evidence."""
    hang = attempt.diagnosis or Diagnosis()
    named = {"kind": hang.kind, "summary": hang.summary, "place": hang.place}
    facts: dict[str, Any] = {name: one_line(text, WHAT) for name, text in named.items() if text}
    edges = hang.cycle[:EDGES]
    if edges:
        pairs = zip(cycle_sentences(edges), edges, strict=True)
        facts["cycle"] = [[one_line(sentence, WHAT), one_line(edge.evidence, WHAT)] for sentence, edge in pairs]
    return facts | ({"closed": True} if hang.closed else {})


def _change(change: CellChange) -> dict[str, Any]:
    facts = {"kind": str(change.change), "was": str(change.old.outcome) if change.old else None}
    if change.old and change.old.signature and change.change is not ChangeKind.STILL_FAILING:
        facts["signature"] = one_line(change.old.signature, WHAT)
    if change.why:
        facts["why"] = one_line(change.why, WHAT)
    return facts | ({"script": "the script changed, too"} if change.script_changed else {})


def condition_words(condition: Condition) -> str:
    """Return what a header asks for, in words."""
    parts = [condition.op]
    parts += [f"under {condition.under}"] if condition.under else []
    parts += [f"with {', '.join(condition.keys)}"] if condition.keys else []
    if condition.grad_mode is not None:
        parts.append(f"with grad mode {'on' if condition.grad_mode else 'off'}")
    if condition.thread:
        parts.append("in the main thread" if condition.thread == "main" else "in another thread")
    if condition.python_key is not None:
        parts.append("with the Python key" if condition.python_key else "without the Python key")
    return " ".join(parts)


def _environment(
    environment: Environment, factors: Factors, strings: Strings, room: int, called: Callable[[str], str]
) -> dict[str, Any]:
    """Return an environment with as many of its facts as there is room for, each written once in a page."""
    here = {
        name: Cell(environment=environment.id, scenario=scenario, outcome=Outcome.PASS, expected=True, seconds=0)
        for name, scenario in (("scenario", NAME_HERE), ("script", f"{NAME_HERE}.py"))
    }
    facts: dict[str, Any] = {
        "commands": {
            "rerun": one_line(rerun_commands.rerun(here["scenario"], environment, called("matrix")), WHAT),
            "script": one_line(rerun_commands.rerun(here["script"], environment, called("matrix")), WHAT).replace(
                f"{NAME_HERE}.py", NAME_HERE
            ),
            "bisect": one_line(rerun_commands.bisect(here["scenario"], environment, called("bisect")), WHAT),
            "explain": one_line(rerun_commands.explain(here["scenario"], called("explain")), WHAT),
        }
    }
    if environment.outcome:
        facts["problem"] = f"{environment.outcome}: {one_line(environment.reason or '', WHAT)}"
    if environment.notes:
        facts["notes"] = [one_line(note, WHAT) for note in environment.notes[:EDGES]]
    names = [name for name in factors if name not in AXES and not _is_kernel(name)]
    packages = [f"{name.removeprefix('package ')} {factors[name]}" for name in names if name.startswith("package ")]
    others = [f"{name}: {factors[name]}" for name in names if not name.startswith("package ")]
    for title, texts in (("packages", packages), ("fingerprint", others)):
        kept: list[int] = []
        for text in texts:
            shown = one_line(text, VALUE)
            room -= 5 if shown in strings.texts else cost(shown) + 6
            if room < 0:
                break
            kept.append(strings.place(shown))
        facts[title] = kept
        if len(kept) < len(texts):
            facts[f"{title} left out"] = len(texts) - len(kept)
    return facts


def _is_kernel(name: str) -> bool:
    """Return whether a factor is one of the hundreds of entries of dispatch tables."""
    return "'s " in name and name.endswith(" kernel")


class _Nearest:
    """For each red cell the passing environment of the same test that differs least, and how it differs."""

    def __init__(self, factors: Sequence[Factors]) -> None:
        self._factors = factors
        self._distances: dict[Place, tuple[int, int, int]] = {}
        self.pairs: dict[str, dict[str, Any]] = {}  # "3.1": how column 3 differs from column 1, which passes

    def of(self, square: Square, row: GridRow) -> int | None:
        """Return the column of the nearest passing cell of the row."""
        passing = [
            one.column for one in row.squares if one and one.cell.outcome is Outcome.PASS and not one.cell.is_doubted
        ]
        if not passing:
            return None
        found = min(passing, key=lambda column: self._distance(square.column, column))
        key = f"{square.column}.{found}"
        if key not in self.pairs and len(self.pairs) < PAIRS:
            self.pairs[key] = _differences(self._factors[square.column], self._factors[found])
        return found

    def _distance(self, one: int, other: int) -> tuple[int, int, int]:
        key = (min(one, other), max(one, other))
        if key not in self._distances:
            self._distances[key] = distance(self._factors[one], self._factors[other])
        return self._distances[key]


def _differences(mine: Factors, other: Factors) -> dict[str, Any]:
    """Return the axes, packages and other facts in which two environments differ: name, here, there."""
    names = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
    kinds: dict[str, list[str]] = {"axes": [], "packages": [], "facts": []}
    for name in sorted(names, key=lambda name: (_is_kernel(name), name.startswith(_CONFIG))):  # the telling ones first
        kinds["axes" if name in AXES else "packages" if name.startswith("package ") else "facts"].append(name)
    found: dict[str, Any] = {}
    for kind, those in kinds.items():
        found[kind] = [
            [
                one_line(name.removeprefix("package "), VALUE),
                one_line(mine.get(name, ABSENT), VALUE),
                one_line(other.get(name, ABSENT), VALUE),
            ]
            for name in those[:DIFFERENCES]
        ]
        if len(those) > DIFFERENCES:
            found[f"more {kind}"] = len(those) - DIFFERENCES
    return found
