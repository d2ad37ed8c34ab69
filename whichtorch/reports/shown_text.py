"""Text from anywhere, made fit to be shown.

Hidden characters are written out (`visible`), so that a reader sees that they are there, and no viewer has to cope
with them.

In GitHub's Markdown nothing in a text becomes markup. A backslash does not keep `@name` from being a mention, nor `#12`
from being a link: GitHub looks for both after it has read the Markdown. It does not look in code spans.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from whichtorch.base.escapes import ESCAPES

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
