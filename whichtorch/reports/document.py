"""An answer as data: blocks of text, which a screen and a document of Markdown show each in its own way.

Text in a block is never markup, whatever it holds. A line may have parts that are code, that stand out, or that are
links. A screen shows them as text.

Text from anywhere is made fit to be shown. Hidden characters are written out (`visible`), so that a reader sees that
they are there, and no viewer has to cope with them. In GitHub's Markdown nothing in a text becomes markup. A backslash
does not keep `@name` from being a mention, nor `#12` from being a link: GitHub looks for both after it has read the
Markdown. It does not look in code spans.
"""

from __future__ import annotations

import html
import math
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tabulate import tabulate

from whichtorch.base.redaction import ESCAPES

if TYPE_CHECKING:
    Line = str | tuple[str, ...]
    Block: TypeAlias = "Heading | Paragraph | Items | Table | Listing | Fold"

LINE = 2000  # characters of one line of a text that the page shows
_LINE_TAIL = 200  # of them, those from the line's end
LONGEST = 500  # characters of a line: more is somebody's data
HEAD, TAIL = 5, 25  # lines of a failure's output that are shown
READ = 2**16  # bytes of each end of an output file that are looked at

# Controls but tab and line feed; separators that scripts take for line ends; marks that turn, join or hide text;
# tags; lone surrogates, which no file can hold.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\ufffe\uffff\U0001d173-\U0001d17a\U000e0000-\U000e007f\ud800-\udfff]"
)
# in a word: markup, mentions, references, mathematics, HTML, entities, links; underscores but inside a name, brackets
# but around numbers
_MARKUP = re.compile(
    r"[\\`*#@|~$]|\[(?![-+]?\.?\d)|\](?=[(\[:])|<(?=[a-z/!?])|&(?=[\w#])|(?<![^\W_])_|_(?![^\W_])|://|\bwww\.",
    re.IGNORECASE,
)
_BEGINS_BLOCK = re.compile(r"[-+=]+|\d+[.)]|>.*")  # as the first word of a line: a list, a heading, a rule, a quote
_LONG = re.compile(rf"[^\n]{{{LINE + 1},}}")

COLUMNS = 10  # of a table of Markdown beside the first: more continue in a table below
GAP = 4  # columns between two of a screen's table, and what tabulate adds to heads
NOTE = 80  # bytes of a note on what is left out, at most


def plain(text: str | bytes) -> str:
    r"""Return text without terminal escapes, with hidden characters written out, and with long lines cut.

    A hidden character becomes its escape (\x00, \u202e), not its picture, for which few machines have a font; bytes
    that are not UTF-8 become U+FFFD. A cut says how many characters it took.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="replace")
    if text.isascii() and text.isprintable() and len(text) <= LINE:
        return text
    return _LONG.sub(_without_middle, visible(text.replace("\r\n", "\n")))


def visible(text: str) -> str:
    """Return text without terminal escapes, and with hidden characters written out."""
    return text if text.isascii() and text.isprintable() else _HIDDEN.sub(_escape, ESCAPES.sub("", text))


def one_line(text: str, limit: int = LONGEST) -> str:
    """Return visible text as one line of at most `limit` characters."""
    return cut(" ".join(visible(" ".join(text.split())).split()), limit)


def _escape(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number <= 0xFF:
        return f"\\x{number:02x}"
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


def _without_middle(match: re.Match[str]) -> str:
    line = match[0]
    return f"{line[: LINE - _LINE_TAIL]} … {len(line) - LINE} characters cut … {line[-_LINE_TAIL:]}"


def cut(line: str, longest: int = LONGEST) -> str:
    """Return a line of at most `longest` characters."""
    return line if len(line) <= longest else line[: longest - 1] + "…"


def shown_path(path: Path) -> str:
    """Return a path relative to the current folder where it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def first_and_last_lines(path: Path | None) -> list[str]:
    """Return the first and last lines of a file, long ones cut; none where there is no file, or an empty one."""
    if path is None:
        return []
    try:
        head, tail, size = read_ends(path, READ)
    except OSError:
        return []
    text = (head + tail).decode(errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    lines = [cut(line) for line in visible(text).split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    is_whole = size <= len(head) + len(tail)
    if is_whole and len(lines) <= HEAD + TAIL:
        return lines
    left_out = max(0, len(lines) - HEAD - TAIL)
    return [*lines[:HEAD], f"… {left_out} lines{'' if is_whole else ' or more'} …", *lines[HEAD:][-TAIL:]]


def read_ends(path: Path, length: int) -> tuple[bytes, bytes, int]:
    """Return up to `length` bytes of each end of a file, and its size in bytes; raise OSError."""
    with path.open("rb") as file:
        head = file.read(length)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(len(head), size - length))
        return head, file.read(length), size


def short_list(words: Sequence[str], most: int) -> str:
    """Return the first `most` words as a list in a sentence, and how many more there are."""
    more = len(words) - most
    return ", ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


def is_link(text: str) -> bool:
    """Return whether a text may become a link: no other scheme, because some run code."""
    return text.startswith(("https://", "http://")) and not any(letter.isspace() for letter in text)


def code_span(text: str) -> str:
    """Return text as one line of code; "" for none."""
    line = one_line(text, sys.maxsize)
    if not line:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    gap = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{gap}{line}{gap}{fence}"


def escaped(text: str) -> str:
    """Return text as one line; words that Markdown would take for markup are code, with a comma after them outside."""
    words = re.split(r"((?:[,;:])? )", one_line(text, sys.maxsize))
    needs_code = [bool(_MARKUP.search(word)) for word in words]
    needs_code[0] = needs_code[0] or bool(_BEGINS_BLOCK.fullmatch(words[0]))
    return "".join(code_span(word) if is_code else word for word, is_code in zip(words, needs_code, strict=True))


def fenced(lines: Iterable[str], language: str = "text") -> Iterator[str]:
    """Yield a block of text, with a fence that the text does not hold."""
    shown = [part for line in lines for part in visible(line).split("\n")]
    fence = "`" * max(3, 1 + max((len(run) for line in shown for run in re.findall("`+", line)), default=0))
    yield f"{fence}{language}"
    yield from shown
    yield fence


def table_row(row: Iterable[str]) -> str:
    """Return a row of a table. No cell is padded: columns of a wide run would be mostly blanks."""
    # a blank goes between a backslash and a pipe, or the one would escape the escape
    cells = (re.sub(r"\\(?=\|)", r"\\ ", text).replace("|", "\\|") for text in row)
    return f"| {' | '.join(cells)} |"


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
            shown = [(text, line) for line in lines if (text := "".join(line)).strip()]  # a bare "-" makes a heading
            items = [f"{' ' * min(4, len(text) - len(text.lstrip(' ')))}- {marked(line)}" for text, line in shown]
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
