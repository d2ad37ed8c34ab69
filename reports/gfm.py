"""GitHub's Markdown that shows somebody's text as it is: nothing in the text becomes markup.

A backslash does not keep `@name` from being a mention, nor `#12` from being a link: GitHub looks for both after it has
read the Markdown. It does not look in code spans.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from reports.shown_text import cleaned, cleaned_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# in a word: markup, mentions, references, mathematics, HTML, entities, links; underscores but inside a name
_MARKUP = re.compile(r"[\\`*#@|~$\[\]]|<(?=[a-z/!?])|&(?=[\w#])|(?<![^\W_])_|_(?![^\W_])|://|\bwww\.", re.IGNORECASE)
_BEGINS_BLOCK = re.compile(r"[-+=]+|\d+[.)]|>.*")  # as the first word of a line: a list, a heading, a rule, a quote


def code_span(text: str) -> str:
    """Return text as one line of code; "" for none."""
    line = cleaned_line(text)
    if not line:
        return ""
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    gap = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{gap}{line}{gap}{fence}"


def escaped(text: str) -> str:
    """Return text as one line in which the words that Markdown would take for markup are code."""
    words = cleaned_line(text).split(" ")
    needs_code = [bool(_MARKUP.search(word)) for word in words]
    needs_code[0] = needs_code[0] or bool(_BEGINS_BLOCK.fullmatch(words[0]))
    return " ".join(code_span(word) if is_code else word for word, is_code in zip(words, needs_code, strict=True))


def fenced(lines: Iterable[str]) -> Iterator[str]:
    """Yield a block of text, with a fence that the text does not hold."""
    shown = [part for line in lines for part in cleaned(line).split("\n")]
    fence = "`" * max(3, 1 + max((len(run) for line in shown for run in re.findall("`+", line)), default=0))
    yield f"{fence}text"
    yield from shown
    yield fence


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield a table of cells that are Markdown already."""
    yield from table_head(headers)
    yield from map(table_row, rows)


def table_head(headers: Sequence[str]) -> Iterator[str]:
    """Yield the head of a table."""
    yield table_row(headers)
    yield table_row(["---"] * len(headers))


def table_row(row: Iterable[str]) -> str:
    """Return a row of a table. No cell is padded: columns of a wide run would be mostly blanks."""
    return f"| {' | '.join(map(_cell, row))} |"


def _cell(text: str) -> str:
    """Escape the pipes of a cell. A blank goes between a backslash and a pipe, or the one would escape the escape."""
    return re.sub(r"\\(?=\|)", r"\\ ", text).replace("|", "\\|")
