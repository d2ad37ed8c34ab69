"""Markdown read by a parser that is not ours."""

from collections.abc import Iterator

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def tokens(text: str) -> list[Token]:
    """Return all tokens, those inside lines among them."""
    return [part for token in _PARSER.parse(text) for part in (token, *(token.children or ()))]


def kinds(text: str) -> set[str]:
    """Return what there is beside text, code and what holds them."""
    return {token.type for token in tokens(text)}


def tables(text: str) -> Iterator[list[list[str]]]:
    """Yield each table as rows of cells, as a reader sees them."""
    found = _PARSER.parse(text)
    for at, token in enumerate(found):
        if token.type == "table_open":
            rows: list[list[str]] = []
        elif token.type == "tr_open":
            rows.append([])
        elif token.type in {"th_open", "td_open"}:
            rows[-1].append(shown(found[at + 1]))
        elif token.type == "table_close":
            yield rows


def shown(inline: Token) -> str:
    """Return what a reader sees of a line."""
    return "".join(part.content for part in inline.children or ())


def bare(text: str) -> str:
    """Return what is shown as text, and not as code: where mentions and references would be looked for."""
    return "\n".join(token.content for token in tokens(text) if token.type == "text")


def blocks(text: str) -> list[list[str]]:
    """Return the lines of each block of code."""
    return [token.content.splitlines() for token in _PARSER.parse(text) if token.type == "fence"]
