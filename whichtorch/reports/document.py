"""An answer as data: blocks of text, which a screen and a document of Markdown show each in its own way.

Text in a block is never markup, whatever it holds. A line may have parts that are code, that stand out, or that are
links. A screen shows them as text.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, TypeAlias

from tabulate import tabulate

from whichtorch.reports.shown_text import code_span, escaped, fenced, is_link, one_line, table_row

if TYPE_CHECKING:
    Line = str | tuple[str, ...]
    Block: TypeAlias = "Heading | Paragraph | Items | Table | Listing | Fold"

COLUMNS = 10  # of a table of Markdown beside the first: more continue in a table below
GAP = 4  # columns between two of a screen's table, and what tabulate adds to heads
NOTE = 80  # bytes of a note on what is left out, at most


class Code(str):
    """A part of a line that is code."""

    __slots__ = ()


class Strong(str):
    """A part of a line that stands out: a word of ours, which is never markup."""

    __slots__ = ()


class Link(str):
    """A part of a line that is an address, or the number of a pull request of PyTorch, as in #1234."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Heading:
    """The title of what follows; a screen has none."""

    text: Line
    level: int = 2


@dataclass(frozen=True, slots=True)
class Paragraph:
    """Sentences that stand alone."""

    text: Line


@dataclass(frozen=True, slots=True)
class Items:
    """Lines that belong together; a screen shows how they are indented."""

    lines: Sequence[Line]
    rank: int = 0  # those of the highest are the first to be left out where a document is too long


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below heads; the first column names the rows."""

    heads: Sequence[Line]
    rows: Sequence[Sequence[Line]]
    title: Line = ""
    rank: int = 0

    def parts(self, fits: float, widths: Sequence[int]) -> Iterator[Table]:
        """Yield tables that have the first column, and as many of the others as `fits` holds, in their order."""
        block: list[int] = []
        used = 0
        for index, width in enumerate(widths[1:], start=1):
            if block and used + width > fits:
                yield self._part(block)
                block, used = [], 0
            block.append(index)
            used += width
        yield self._part(block)

    def _part(self, columns: Sequence[int]) -> Table:
        rows = [[row[index] for index in (0, *columns)] for row in self.rows]
        return Table([self.heads[index] for index in (0, *columns)], rows, rank=self.rank)


@dataclass(frozen=True, slots=True)
class Listing:
    """Lines that are shown as they are."""

    lines: Sequence[str]
    language: str = "text"
    title: Line = ""
    rank: int = 0


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks that a reader opens; a screen leaves them out."""

    title: str
    blocks: Sequence[Block]


def screen(blocks: Iterable[Block], width: float = math.inf) -> Iterator[str]:
    """Yield blocks as lines; a table that is wider than `width` columns continues below."""
    for block in blocks:
        match block:
            case Paragraph(text):
                yield from ("".join(text), "")
            case Items(lines) if lines:
                yield from (*map("".join, lines), "")
            case Table():
                yield from _screen_table(block, width)
            case Listing(lines):
                yield from (*lines, "")


def _screen_table(table: Table, width: float) -> Iterator[str]:
    columns = [["".join(cell) for cell in column] for column in zip(table.heads, *table.rows, strict=True)]
    widths = [GAP + max(len(line) for cell in column for line in cell.split("\n")) for column in columns]
    if table.title:
        yield "".join(table.title)
    for part in table.parts(width + GAP - widths[0], widths):
        heads, *rows = ([*map("".join, row)] for row in (part.heads, *part.rows))
        yield from (*tabulate(rows, headers=heads, disable_numparse=True).splitlines(), "")


def markdown(blocks: Iterable[Block], limit: float = math.inf) -> list[str]:
    """Return blocks as lines of Markdown that take at most `limit` bytes in a file.

    Where they would take more, the last items of the blocks of the highest rank are left out, and a note counts them.
    """
    parts = [part for block in blocks for part in _in_markdown(block)]
    lines = _joined(parts, [part.items for part in parts], "")
    if size_of(lines) <= limit:
        return lines
    budget = limit - sum(size_of((*part.head, *part.tail)) + NOTE for part in parts)
    kept: list[list[str]] = [[] for _ in parts]
    for place in sorted(range(len(parts)), key=lambda place: parts[place].rank):
        for item in parts[place].items:
            budget -= size_of([item])
            if budget < 0:
                break
            kept[place].append(item)
    return _joined(parts, kept, f"more are left out, to stay below {limit // 1000} kB.*")


def _joined(parts: Iterable[_Part], kept: Iterable[Sequence[str]], note: str) -> list[str]:
    lines: list[str] = []
    for part, items in zip(parts, kept, strict=True):
        missing = len(part.items) - len(items)
        lines += (*part.head, *items, *(("", f"*{missing:,} {note}") if missing else ()), *part.tail)
    return lines[:-1] if lines and not lines[-1] else lines


def size_of(lines: Iterable[str]) -> int:
    """Return how many bytes lines take in a file."""
    return sum(len(line.encode()) + 1 for line in lines)


@dataclass(frozen=True, slots=True)
class _Part:
    """Lines of Markdown: items, each of which may be left out, between lines that are always there."""

    head: Sequence[str] = ()
    items: Sequence[str] = ()
    tail: Sequence[str] = ("",)
    rank: int = 0


def _in_markdown(block: Block) -> Iterator[_Part]:
    match block:
        case Heading(text, level):
            yield _Part([f"{'#' * level} {marked(text)}"])
        case Paragraph(text):
            yield _Part([marked(text)])
        case Items(lines, rank) if lines:
            indents = [min(4, len(text) - len(text.lstrip(" "))) for text in map("".join, lines)]
            items = [f"{' ' * indent}- {marked(line)}" for indent, line in zip(indents, lines, strict=True)]
            yield _Part(items=items, rank=rank)
        case Table(title=title, rank=rank):
            if title:
                yield _Part([f"{marked(title)}:"])
            for part in block.parts(COLUMNS, [1] * len(block.heads)):
                head = [table_row(map(marked, part.heads)), table_row(["---"] * len(part.heads))]
                rows = ([cell if cell == "-" else marked(cell) for cell in row] for row in part.rows)
                yield _Part(head, [*map(table_row, rows)], rank=rank)
        case Listing(lines, language, title, rank):
            above = [marked(title), ""] if title else []
            yield _Part(items=["\n".join((*above, *fenced(lines, language)))], rank=rank)
        case Fold(title, blocks):
            # no Markdown is read in a line of HTML
            yield _Part(["<details>", f"<summary>{html.escape(one_line(title))}</summary>"])
            for inner in blocks:
                yield from _in_markdown(inner)
            yield _Part(["</details>"])


def marked(line: Line) -> str:
    """Return a line as Markdown; what stands between backticks in a text is code, too."""
    text = ""
    for kind, parts in groupby((line,) if isinstance(line, str) else line, type):
        for part in ["".join(parts)] if kind is str else parts:  # no markup arises between two texts
            for shown in _marked(part):  # a blank goes between two code spans, or they would be one
                text += f" {shown}" if text.endswith("`") and shown.startswith("`") else shown
    return text.strip()


def _marked(part: str) -> Iterator[str]:
    match part:
        case Code():
            yield code_span(part)
        case Strong():
            yield f"**{part}**"
        case Link() if re.fullmatch(r"#\d+", part):
            yield f"[{part}](https://github.com/pytorch/pytorch/pull/{part[1:]})"
        case Link() if is_link(part) and not {"<", ">"} & {*part}:
            yield f"<{part}>"
        case _:
            parts = part.split("`") if part.count("`") % 2 == 0 else [part]
            yield from (code_span(text) if place % 2 else _spaced(text) for place, text in enumerate(parts))


def _spaced(text: str) -> str:
    """Return text as Markdown with the blanks around it."""
    bare = text.strip()
    return escaped(bare).join((" " * text[:1].isspace(), " " * (bool(bare) and text[-1:].isspace())))
