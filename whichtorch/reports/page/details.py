"""What a page knows of each cell beyond the grid, as lines of JSON that templates/page.js reads.

The first line is what cells share. Then comes a line for each row of the grid, read when a cell of the row is opened.
Keys that say nothing are left out. A string that many cells share is a number: its index in a list.

Facts come first. What attempts wrote, and their stacks, is cut to the bytes that are left, head and tail, with how much
is missing; what matters most gets them first.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.grouping import counted
from whichtorch.explain.explanation import distance
from whichtorch.hangs.narration import cycle_sentences
from whichtorch.model import Attempt, Cell, Condition, Diagnosis, Environment, Measurement, Outcome, split_test
from whichtorch.process.task_tree import whole_characters
from whichtorch.records.compare.comparison import CellChange, ChangeKind
from whichtorch.records.compare.factors import ABSENT, AXES, Factors, factors_of
from whichtorch.reports.cell_text import CommandPrefix, bisect_command, in_shell, representative_attempt, rerun_command
from whichtorch.reports.document import one_line, plain, read_ends
from whichtorch.reports.numbers_text import shown_number
from whichtorch.reports.page.grid import WHAT, Grid, GridEntry, GridRow
from whichtorch.reports.stored_run_text import WORSE, causes_of

if TYPE_CHECKING:
    from whichtorch.records.store import StoredRun
    from whichtorch.reports.page.highlights import Changes

    Json = str | float | Sequence["Json"] | Mapping[str, "Json"] | Mapping[int, "Json"] | None
    Differences = dict[str, Json]  # lists of name, value here, value there; "more axes" and so on count others

    TextLine = tuple[str, str, int]  # title, text, 1 where it is folded

Position = tuple[int, int]  # row and column of the grid

HEAD = 1 / 3  # share of an output's budget for its head: the first error is there, but the last words say more
SMALLEST = 400  # bytes below which an excerpt says nothing
OVERHEAD = 60  # bytes that a text takes besides itself: title, brackets, its share of the list's name

ATTEMPTS = 20  # of a cell that are shown; more are counted
DIAGNOSIS = 4000  # characters of what an opened hang says of itself: dozens of ranks that disagree
EDGES = 12  # of who waits for whom
ENVIRONMENTS = 0.25  # share of a page that facts of environments may take
FEW_READ, MOST_READ = 2**12, 2**16  # bytes of each end of an output that are read
NAME_HERE = "THE_CELL_HERE"  # stands in an environment's commands for the name of a cell
VALUE = 80  # characters of a fact: some fields hold a compiler's whole command line
NOTES = 12  # that are shown
DIFFERENCES = 12  # packages, and other facts, in which two environments differ; more are counted
PAIRS = 300  # of environments whose differences are listed; of more only the axes

_TEXTS = ("reason", "message", "signature", "known")  # fields of a cell
_CONFIG = "config."  # begins the facts of torch.__config__
_PACKAGE = "package "  # begins a factor that is a package's version


class Rank(IntEnum):
    """How much the texts of a cell matter."""

    URGENT = 0
    RED = 1
    DOUBTED = 2
    REST = 3


EACH = {Rank.URGENT: 48_000, Rank.RED: 16_000, Rank.DOUBTED: 6_000, Rank.REST: 1_500}  # bytes for the texts of a cell
ALL_REST = 300_000  # bytes for the texts of all cells of the last rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Excerpt:
    """A text that may be shown in part."""

    title: str
    head: bytes
    tail: bytes = b""
    cut: int = 0  # bytes between the two that were never read
    is_folded: bool = False

    def text(self, length: int | None = None) -> str:
        """Return `length` bytes, or all there are, with a line that says how much is left out."""
        head, tail, cut = self.head, self.tail, self.cut
        if length is not None and length < self.length:
            whole, rest = (head, tail) if cut else (head + tail, head + tail)
            # of a stack only the beginning matters: the innermost frames
            at_head = int(length * HEAD) if self.title.startswith("std") else length
            at_tail = length - at_head
            cut += self.length
            head = whole_characters(whole[:at_head], at_end=True)
            tail = whole_characters(rest[max(0, len(rest) - at_tail) :], at_end=False) if at_tail else b""
            cut -= len(head) + len(tail)
        if not cut:
            return plain(head + tail)
        return "\n".join(part for part in (plain(head), f"… {cut:,} bytes cut …", plain(tail)) if part)

    @property
    def length(self) -> int:
        """How many bytes there are to show."""
        return len(self.head) + len(self.tail)

    def fitting(self, budget: int) -> str:
        """Return as much of it as takes `budget` bytes of a page; "" where that says nothing."""
        length = min(self.length, max(0, budget))
        text = self.text(length)
        while (taken := cost(text)) > budget and length > 0:
            length = int(length * budget / taken * 0.97)
            text = self.text(length)
        return text if length == self.length or budget >= SMALLEST else ""


def encoded(value: object) -> str:
    """Return JSON that can stand in a script element of a page: nothing in it ends the element or a line."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for letter in "<>&\u2028\u2029":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def cost(text: str) -> int:
    """Return the bytes that a text takes in a page."""
    return len(encoded(text).encode())


def fitted(
    texts: Mapping[Position, list[Excerpt]], ranks: Mapping[Position, Rank], budget: int
) -> dict[Position, list[TextLine]]:
    """Return as much of the cells' texts as takes `budget` bytes of a page, in the order of their ranks.

    Cells of a rank share what there is; what one does not need goes to those after it.
    """
    lines: dict[Position, list[TextLine]] = {}
    waiting = sum(ranks[position] is not Rank.REST for position in texts)
    for rank in Rank:
        positions = [position for position in texts if ranks[position] is rank]
        waiting -= len(positions) if rank is not Rank.REST else 0
        kept = min(budget // 2, waiting * (SMALLEST + 2 * OVERHEAD))  # so that no red cell goes without
        budget = min(budget, ALL_REST) if rank is Rank.REST else budget
        for number, position in enumerate(positions):
            parts = list(_parts(texts[position], min(EACH[rank], (budget - kept) // (len(positions) - number))))
            if parts:
                lines[position] = parts
                budget -= len(encoded({"texts": parts}).encode())
    return lines


def _parts(excerpts: Sequence[Excerpt], left: int) -> Iterator[TextLine]:
    """Yield as much of the texts of a cell as takes `left` bytes, the first ones first where there is little room."""
    for number, excerpt in enumerate(excerpts):
        room = max(min(left, SMALLEST + OVERHEAD), left // (len(excerpts) - number)) - OVERHEAD
        if text := excerpt.fitting(room):
            yield excerpt.title, text, int(excerpt.is_folded)
            left -= cost(text) + OVERHEAD


def excerpts(stored: StoredRun, attempt: Attempt, end: int) -> Iterator[Excerpt]:
    """Yield what an attempt left in files: where it is stuck, what it wrote, then the other threads.

    `end` is how many bytes of each end of an output are read.
    """
    stacks = list(_stacks(stored, attempt)) if attempt.stacks else []
    yield from stacks[:1]
    for name, path, written in (
        ("stderr", attempt.stderr, attempt.stderr_bytes),
        ("stdout", attempt.stdout, attempt.stdout_bytes),
    ):
        file = _file(stored, path)
        if file is not None:
            yield from _ends(name, file, end)
        elif path and written:
            yield Excerpt(title=name, head=f"({written:,} bytes were written; {path} is not there any more)".encode())
    yield from stacks[1:]


def _file(stored: StoredRun, path: str) -> Path | None:
    """Return a file or folder of the run; None where it is gone, or none of the run's."""
    file = stored.file(path)
    return file if file is not None and file.exists() else None


def _ends(name: str, path: Path, end: int) -> Iterator[Excerpt]:
    try:
        head, tail, size = read_ends(path, end)
    except OSError:
        return
    if size > len(head) + len(tail):
        head, tail = whole_characters(head, at_end=True), whole_characters(tail, at_end=False)
    if size:
        yield Excerpt(title=name, head=head, tail=tail, cut=max(0, size - len(head) - len(tail)))


def _stacks(stored: StoredRun, attempt: Attempt) -> Iterator[Excerpt]:
    """Yield the stuck thread, the path in the dispatcher, and the other threads, as the diagnosis has them."""
    folder = _file(stored, attempt.stacks)
    if folder is None:
        yield Excerpt(title="stacks", head=f"{attempt.stacks} is not there any more".encode())
        return
    diagnosis = attempt.diagnosis
    if diagnosis is None or not (diagnosis.stacks or diagnosis.left_out):
        names = ", ".join(sorted(path.name for path in folder.iterdir())) if folder.is_dir() else ""
        yield Excerpt(title="stacks", head=f"nobody made sense of them; {attempt.stacks} holds {names}".encode())
        return
    first, *others = *diagnosis.stacks, *([diagnosis.left_out] if diagnosis.left_out else [])
    yield Excerpt(title="stuck thread" if diagnosis.stuck else "a thread", head=first.encode())
    if diagnosis.path:
        yield Excerpt(title="path in the dispatcher", head=diagnosis.path.encode())
    if others:
        count = len(diagnosis.stacks[1:])
        title = f"{count} other thread{'s' if count != 1 else ''}"
        yield Excerpt(title=title, head="\n\n".join(others).encode(), is_folded=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """What is known of cells, before texts are added."""

    shared: dict[str, Json]
    rows: list[tuple[dict[str, Json], dict[int, dict[str, Json]]]]  # facts of a row; of its cells, by column
    texts: dict[Position, list[Excerpt]]
    ranks: dict[Position, Rank]

    def lines(self, budget: int) -> Iterator[str]:
        """Yield the lines, with texts of at most `budget` bytes in all."""
        texts = fitted(self.texts, self.ranks, budget)
        yield encoded(self.shared)
        for number, (facts, row) in enumerate(self.rows):
            cells = {column: cell | _given(texts=texts.get((number, column))) for column, cell in row.items()}
            yield encoded({"cells": cells} | facts)

    def least(self) -> Iterator[str]:
        """Yield the lines without what is known of cells, for a run whose names alone fill a page."""
        yield encoded(self.shared | {"pairs": {}, "strings": []})
        yield from (encoded({"cells": {}}) for _ in self.rows)


def details_of(stored: StoredRun, grid: Grid, changes: Changes, called: CommandPrefix, limit: int) -> Details:
    """Return what is known of all cells; `limit` is the bytes that the whole page may take."""
    factors = [factors_of(column.environment) for column in grid.columns]
    nearest = _NearestPasses(factors)
    strings: dict[str, int] = {}
    rows: list[tuple[dict[str, Json], dict[int, dict[str, Json]]]] = []
    ranks: dict[Position, Rank] = {}
    cells: dict[Position, Cell] = {}
    for number, row in enumerate(grid.rows):
        facts: dict[int, dict[str, Json]] = {}
        for entry in filter(None, row.entries):
            cell, column = entry.cell, entry.column.index
            change = changes.get(entry.key)
            near = nearest.of(entry, row) if cell.is_red else None
            facts[column] = _cell(cell, strings) | _given(change=_change(change) if change else None, near=near)
            ranks[number, column] = _rank(entry, change)
            cells[number, column] = cell
        name, own = split_test(plain(next(entry.cell.name for entry in row.entries if entry)))
        quoted = shlex.quote(name)
        quoted = "" if quoted == f"'{row.name}'" else quoted  # page.js puts names in single quotes itself
        rows.append((_given(quoted=quoted, own=own, turning=row.boundary_words), facts))
    few_passes = sum(rank is Rank.REST for rank in ranks.values()) * EACH[Rank.REST] <= 4 * ALL_REST
    shown = {position: cell for position, cell in cells.items() if few_passes or ranks[position] is not Rank.REST}
    end = min(MOST_READ, max(FEW_READ, 2 * limit // max(1, len(shown))))
    texts = {
        position: parts
        for position, cell in shown.items()
        if (attempt := representative_attempt(cell)) and (parts := list(excerpts(stored, attempt, end)))
    }
    share = int(limit * ENVIRONMENTS / max(1, len(grid.columns)))
    environments = [
        _environment(column.environment, known, strings, share, called)
        for column, known in zip(grid.columns, factors, strict=True)
    ]
    shared: dict[str, Json] = {
        "environments": environments,
        "strings": list(strings),
        "pairs": nearest.pairs,
        "here": NAME_HERE,
    }
    return Details(shared=shared, rows=rows, texts=texts, ranks=ranks)


def _given(**facts: Json) -> dict[str, Json]:
    """Return the facts that say something; zero does."""
    return {name: value for name, value in facts.items() if value not in (None, "", [], {})}


def _rank(entry: GridEntry, change: CellChange | None) -> Rank:
    cell = entry.cell
    if cell.is_red:
        is_urgent = entry.is_unexpected or cell.outcome is Outcome.HANG or (change and change.change in WORSE)
        return Rank.URGENT if is_urgent else Rank.RED
    is_doubted = cell.is_doubted or cell.outcome.is_prevented or entry.is_unexpected or cell.outcome is Outcome.SLOW
    return Rank.DOUBTED if is_doubted else Rank.REST


def _cell(cell: Cell, strings: dict[str, int]) -> dict[str, Json]:
    """Return what is known of a cell; of a plain pass next to nothing."""
    texts = {name: getattr(cell, name) for name in _TEXTS}
    texts["conflict"] = f"The runs that were merged disagree: {cell.conflict}" if cell.conflict else ""
    conditions = [  # whether it was met, what the header asks for, what was seen
        (result.met, one_line(_condition_words(result.condition), WHAT), one_line(result.seen, WHAT))
        for result in cell.conditions
    ]
    details: dict[str, Json] = {"attempts": [_attempt(attempt) for attempt in cell.attempts[:ATTEMPTS]]}
    details |= _given(more=max(0, len(cell.attempts) - ATTEMPTS) or None)
    details |= {name: _index(one_line(text, WHAT), strings) for name, text in texts.items() if text}
    details |= _given(conditions=conditions, numbers=[_number(number) for number in cell.numbers])
    attempt = representative_attempt(cell)
    if attempt and (attempt.outcome is Outcome.HANG or attempt.diagnosis):
        details["hang"] = _hang(attempt.diagnosis or Diagnosis())
    return details


def _index(text: str, strings: dict[str, int]) -> int:
    """Return the index of a text, adding it where it is new."""
    return strings.setdefault(text, len(strings))


def _attempt(attempt: Attempt) -> Sequence[Json]:
    """Return outcome, seconds, CPU seconds, MB, and what is out of the ordinary, if anything is."""
    was_stopped = attempt.stopped_by != "exit"
    odd = _given(
        stopped=attempt.stopped_by if was_stopped else None,
        limit=attempt.limit if was_stopped else None,
        exit=attempt.exit_code or None,
        signal=one_line(attempt.signal or "", VALUE),
        note=one_line(attempt.note, WHAT),
        survivors=[one_line(name, VALUE) for name in attempt.survivors[:EDGES]],
    )
    numbers = [round(number, 1) for number in (attempt.seconds, attempt.cpu_seconds, attempt.peak_rss_mb)]
    return (attempt.outcome, *numbers, *([odd] if odd else []))


def _number(number: Measurement) -> Sequence[Json]:
    """Return a number's name, value, change and effect, with what it is compared with and how often it was measured."""
    texts = (number.name, *shown_number(number), number.reference, counted(len(number.samples), "run"))
    return [one_line(text, VALUE) for text in texts]


def _hang(diagnosis: Diagnosis) -> dict[str, Json]:
    edges = diagnosis.cycle[:EDGES]
    cycle = [
        (one_line(sentence, WHAT), one_line(edge.evidence, WHAT))
        for sentence, edge in zip(cycle_sentences(edges), edges, strict=True)
    ]
    texts = {name: one_line(getattr(diagnosis, name) or "", DIAGNOSIS) for name in ("kind", "summary", "place")}
    return _given(**texts, cycle=cycle, closed=diagnosis.closed or None)


def _change(change: CellChange) -> dict[str, Json]:
    signature = change.old.signature if change.old and change.change is not ChangeKind.STILL_FAILING else None
    return {"kind": change.change, "was": change.old.outcome if change.old else None} | _given(
        signature=one_line(signature or "", WHAT),
        why=one_line(change.why, WHAT),
        script=one_line("; ".join(causes_of(change)), WHAT),
    )


def _condition_words(condition: Condition) -> str:
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
    environment: Environment, factors: Factors, strings: dict[str, int], budget: int, called: CommandPrefix
) -> dict[str, Json]:
    """Return an environment with as many of its facts as `budget` bytes hold, each written once in a page."""
    scenario, script = (
        Cell(environment=environment.id, scenario=name, outcome=Outcome.PASS, expected=True, seconds=0)
        for name in (NAME_HERE, f"{NAME_HERE}.py")
    )
    matrix = called("matrix")
    problem = f"{environment.outcome}: {one_line(environment.reason or '', WHAT)}" if environment.outcome else ""
    details: dict[str, Json] = {
        "commands": {
            "rerun": one_line(rerun_command(scenario, environment, matrix), WHAT),
            "script": one_line(rerun_command(script, environment, matrix), WHAT).replace(script.scenario, NAME_HERE),
            "bisect": one_line(bisect_command(scenario, environment, called("bisect")), WHAT),
            "explain": one_line(in_shell(called("explain"), scenario.runnable), WHAT),
        },
        **_given(problem=problem, notes=[one_line(note, WHAT) for note in environment.notes[:NOTES]]),
    }
    names = [name for name in factors if name not in AXES and not _is_kernel(name)]
    packages = [f"{name.removeprefix(_PACKAGE)} {factors[name]}" for name in names if name.startswith(_PACKAGE)]
    others = [f"{name}: {factors[name]}" for name in names if not name.startswith(_PACKAGE)]
    for title, texts in (("packages", packages), ("fingerprint", others)):
        indices: list[int] = []
        for text in texts:
            shown = one_line(text, VALUE)
            budget -= 5 if shown in strings else cost(shown) + 6
            if budget < 0:
                break
            indices.append(_index(shown, strings))
        details[title] = indices
        if len(indices) < len(texts):
            details[f"{title} left out"] = len(texts) - len(indices)
    return details


def _is_kernel(name: str) -> bool:
    """Return whether a factor is one of the hundreds of entries of dispatch tables."""
    return "'s " in name and name.endswith(" kernel")


class _NearestPasses:
    """For each red cell the passing environment of the same test that differs least, and how it differs."""

    def __init__(self, factors: Sequence[Factors]) -> None:
        self._factors = factors
        self._distance = cache(lambda column, other: distance(factors[column], factors[other]))
        self.pairs: dict[str, Differences] = {}  # "3.1": how column 3 differs from column 1, which passes

    def of(self, entry: GridEntry, row: GridRow) -> int | None:
        """Return the column of the nearest passing cell of the row."""
        passing = [
            other.column.index
            for other in row.entries
            if other and other.cell.outcome is Outcome.PASS and not other.cell.is_doubted
        ]
        if not passing:
            return None
        mine = entry.column.index
        nearest = min(passing, key=lambda column: self._distance(mine, column))
        key = f"{mine}.{nearest}"
        if key not in self.pairs and len(self.pairs) < PAIRS:
            self.pairs[key] = _differences(self._factors[mine], self._factors[nearest])
        return nearest


def _differences(mine: Factors, other: Factors) -> Differences:
    """Return the axes, packages and other facts in which two environments differ: name, here, there."""
    names = [name for name in {**mine, **other} if mine.get(name) != other.get(name)]
    kinds: dict[str, list[str]] = {"axes": [], "packages": [], "facts": []}
    for name in sorted(names, key=lambda name: (_is_kernel(name), name.startswith(_CONFIG))):  # the telling ones first
        kinds["axes" if name in AXES else "packages" if name.startswith(_PACKAGE) else "facts"].append(name)
    differences: Differences = {}
    for kind, differing in kinds.items():
        differences[kind] = [
            tuple(
                one_line(text, VALUE)
                for text in (name.removeprefix(_PACKAGE), mine.get(name, ABSENT), other.get(name, ABSENT))
            )
            for name in differing[:DIFFERENCES]
        ]
        if len(differing) > DIFFERENCES:
            differences[f"more {kind}"] = len(differing) - DIFFERENCES
    return differences
