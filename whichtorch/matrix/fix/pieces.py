"""A unit's new text -> the pieces that can be left out of it: statements and branches that the bad release lacks."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.fix.parts import statements_of
from whichtorch.matrix.source.syntax import is_docstring

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

SMALLEST = 2  # lines: a shorter piece is not worth a run
_BODIES = ("body", "orelse", "finalbody", "handlers")
_Node = ast.stmt | ast.excepthandler


def without_pieces(bad: str, text: str) -> Iterator[str]:
    """Yield the text without a statement or branch that is all new, the longest first. Raises SyntaxError."""
    lines = text.splitlines(keepends=True)
    old = {ast.dump(node) for top in statements_of(bad) for node in ast.walk(top) if isinstance(node, ast.stmt)}
    found = _pieces(statements_of(text), lines, old, is_chosen=False)
    pieces = {(first, end) for first, end in found if end - first >= SMALLEST}
    for first, end in sorted(pieces, key=lambda piece: (piece[0] - piece[1], piece)):
        yield "".join(lines[:first] + lines[end:])


def _pieces(
    body: Sequence[_Node], lines: Sequence[str], old: Collection[str], *, is_chosen: bool
) -> Iterator[tuple[int, int]]:
    """Yield first and end, as indices of lines, of what can be left out of a body: not its only statement."""
    for node in body:
        if is_chosen and len(body) > 1 and not is_docstring(node) and _is_new([node], old):
            yield _begin(node, lines), _end(node)
        for name in _BODIES:
            inner = getattr(node, name, None)
            if isinstance(inner, list) and inner:
                if name == "orelse" and _is_new(inner[0].body if _is_elif(inner[0], lines) else inner, old):
                    yield _branch(inner, lines)
                yield from _pieces(inner, lines, old, is_chosen=True)


def _is_new(nodes: Sequence[_Node], old: Collection[str]) -> bool:
    """Return whether no statement in these is one of the bad release, but for those that stand everywhere."""
    inner = [each for node in nodes for each in ast.walk(node) if isinstance(each, ast.stmt)]
    return not any(ast.dump(each) in old and not _is_common(each) for each in inner)


def _is_common(node: ast.stmt) -> bool:
    """Return whether a statement says nothing of where it came from: `pass`, `return None`."""
    is_plain_return = isinstance(node, ast.Return) and isinstance(node.value, (ast.Constant, type(None)))
    return is_plain_return or isinstance(node, (ast.Pass, ast.Break, ast.Continue))


def _is_elif(node: _Node, lines: Sequence[str]) -> bool:
    return isinstance(node, ast.If) and lines[node.lineno - 1].lstrip().startswith("elif")


def _branch(inner: Sequence[_Node], lines: Sequence[str]) -> tuple[int, int]:
    """Return the piece that is a whole `else` branch, or one `elif` branch of several."""
    first = inner[0]
    if isinstance(first, ast.If) and _is_elif(first, lines):
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
