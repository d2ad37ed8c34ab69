"""A unit's new text -> the pieces that can be left out of it: statements and branches that the bad release lacks."""

from __future__ import annotations

import ast
import difflib
from typing import TYPE_CHECKING

from matrix.fix.parts import statements_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SMALLEST = 2  # lines: a shorter piece is not worth a run
_BODIES = ("body", "orelse", "finalbody", "handlers")
_Node = ast.stmt | ast.excepthandler


def without_pieces(bad: str, text: str) -> Iterator[str]:
    """Yield the text without a statement or branch that is all new, the longest first. Raises SyntaxError."""
    lines = text.splitlines(keepends=True)
    added = _added(bad.splitlines(keepends=True), lines)
    found = set(_pieces(statements_of(text), lines, is_chosen=False))
    pieces = {(first, end) for first, end in found if end - first >= SMALLEST and added.issuperset(range(first, end))}
    for first, end in sorted(pieces, key=lambda piece: (piece[0] - piece[1], piece)):
        yield "".join(lines[:first] + lines[end:])


def _added(bad: Sequence[str], good: Sequence[str]) -> set[int]:
    """Return the indices of the lines that only `good` has."""
    blocks = difflib.SequenceMatcher(None, bad, good, autojunk=False).get_opcodes()
    return {line for tag, _, _, first, end in blocks if tag != "equal" for line in range(first, end)}


def _pieces(body: Sequence[_Node], lines: Sequence[str], *, is_chosen: bool) -> Iterator[tuple[int, int]]:
    """Yield first and end, as indices of lines, of what can be left out of a body: not its only statement."""
    for node in body:
        if is_chosen and len(body) > 1 and not _is_docstring(node):
            yield _begin(node, lines), _end(node)
        for name in _BODIES:
            inner = getattr(node, name, None)
            if isinstance(inner, list) and inner:
                if name == "orelse":
                    yield _branch(inner, lines)
                yield from _pieces(inner, lines, is_chosen=True)


def _branch(inner: Sequence[_Node], lines: Sequence[str]) -> tuple[int, int]:
    """Return the piece that is a whole `else` branch, or one `elif` branch of several."""
    first = inner[0]
    if isinstance(first, ast.If) and lines[first.lineno - 1].lstrip().startswith("elif"):
        return _begin(first, lines), _keyword_line(first.orelse[0], lines) if first.orelse else _end(first)
    return _keyword_line(first, lines), _end(inner[-1])


def _keyword_line(first: _Node, lines: Sequence[str]) -> int:
    """Return the index of the line with the `else` or `elif` that a branch begins with."""
    begin = first.lineno - 1
    while begin and not lines[begin].lstrip().startswith(("else", "elif")):
        begin -= 1
    return begin


def _begin(node: _Node, lines: Sequence[str]) -> int:
    """Return the index of a statement's first line, that of its decorators and of the comments above it."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    begin = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while begin and lines[begin - 1].lstrip().startswith("#"):
        begin -= 1
    return begin


def _end(node: _Node) -> int:
    assert node.end_lineno is not None
    return node.end_lineno


def _is_docstring(node: _Node) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
