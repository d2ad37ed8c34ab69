"""A module's text -> its parts: the definitions and statements of its body, each with the comments above it.

The parts' texts, one after another, are the module's text: nothing is lost or reformatted.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from whichtorch.matrix.source.syntax import Definition, parse_module

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_LINE = re.compile(r"[^\n]*\n|[^\n]+")  # as `ast` counts them: str.splitlines knows more line ends
NAME_LENGTH = 60  # characters of a statement that has no name of its own
TREES_KEPT = 2000  # of parts, about 20 kB each; all trees of two releases would take over a gigabyte


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A definition or a statement, with the comments and empty lines above it."""

    name: str  # unique in its body
    text: str  # of a class: of its head alone, up to the colon
    first: int  # first line of the text in its module, from 1
    body: tuple[Part, ...] = ()  # of a class
    is_import: bool = False
    is_head: bool = False  # of a class, without its body

    @property
    def nodes(self) -> tuple[ast.stmt, ...]:
        """The statements: several where they share a line, none in what follows the last statement.

        They are parsed again whenever they have not been used for a while; their lines count from the text's begin.
        """
        return _statements(self.text, is_head=True) if self.is_head else _statements(self.whole)

    @property
    def last(self) -> int:
        """Line of the text's end."""
        return self.first + self.text.count("\n") - self.text.endswith("\n")

    @property
    def whole(self) -> str:
        """The text with that of its body."""
        return self.text + "".join(part.whole for part in self.body)


def parts_of(text: str, tree: ast.Module | None = None) -> tuple[Part, ...]:
    """Return the parts of a module, from its first line to its last. Raises SyntaxError."""
    lines = _LINE.findall(text)
    parts = list(_parts((tree or parse_module(text)).body, lines, 0))
    if rest := text[sum(len(part.whole) for part in parts) :]:
        parts.append(Part(name="end of file", text=rest, first=len(lines) - rest.count("\n") + 1))
    return unique(parts)


@lru_cache(maxsize=TREES_KEPT)
def _statements(text: str, *, is_head: bool = False) -> tuple[ast.stmt, ...]:
    if not is_head:
        return tuple(statements_of(text))
    first = next(line for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
    indent = first[: len(first) - len(first.lstrip())]
    (head,) = statements_of(f"{text.rstrip()}\n{indent} pass\n")
    assert isinstance(head, ast.ClassDef)
    return (head,)  # with a body of `pass`: without one it would be no text of Python


def statements_of(text: str) -> list[ast.stmt]:
    """Return the statements of a part's text, with its lines, that of a method as if it stood alone.

    Raises SyntaxError.
    """
    first = next((line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")), "")
    if first == first.lstrip():
        return parse_module(text).body
    (owner,) = ast.increment_lineno(parse_module("class _:\n" + text + "\n"), -1).body
    assert isinstance(owner, ast.ClassDef)
    return owner.body


def _parts(body: Sequence[ast.stmt], lines: Sequence[str], start: int) -> Iterator[Part]:
    """Yield the parts of a body whose first line has the index `start`."""
    position = 0
    while position < len(body):
        nodes = [body[position]]
        while position + len(nodes) < len(body) and body[position + len(nodes)].lineno == nodes[-1].end_lineno:
            nodes.append(body[position + len(nodes)])
        position += len(nodes)
        end = nodes[-1].end_lineno or 0
        node = nodes[0]
        if isinstance(node, ast.ClassDef) and len(nodes) == 1 and (head := _head_end(node, lines)):
            yield Part(
                name=node.name,
                text="".join(lines[start:head]),
                first=start + 1,
                body=unique(tuple(_parts(node.body, lines, head))),
            )
        else:
            is_import = all(isinstance(each, ast.Import | ast.ImportFrom) for each in nodes)
            yield Part(name=_name(node), text="".join(lines[start:end]), first=start + 1, is_import=is_import)
        start = end


def _head_end(node: ast.ClassDef, lines: Sequence[str]) -> int:
    """Return how many lines there are up to the colon of a class; 0 where its body follows on the same line."""
    first = node.body[0]
    decorators = getattr(first, "decorator_list", [])
    end = min([first.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while end >= node.lineno and (not (line := lines[end - 1].strip()) or line.startswith("#")):
        end -= 1
    return end if end >= node.lineno else 0


def unique(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return parts with names of their own: those that share one are told apart by decorators, then numbered."""
    shared = Counter(part.name for part in parts)
    named = [replace(part, name=_decorated(part)) if shared[part.name] > 1 else part for part in parts]
    seen: Counter[str] = Counter()
    numbered = []
    for part in named:
        seen[part.name] += 1
        number = seen[part.name]
        numbered.append(replace(part, name=f"{part.name} #{number}") if number > 1 else part)
    return tuple(numbered)


def _decorated(part: Part) -> str:
    """Return a name with the first decorator that tells it from others: "size@size.setter"."""
    node = part.nodes[0] if part.nodes else None
    decorators = node.decorator_list if isinstance(node, Definition) else []
    return f"{part.name}@{_short(decorators[0])}" if decorators else part.name


def _short(node: ast.AST) -> str:
    return _shortened(" ".join(ast.unparse(node).split()))


def _shortened(words: str) -> str:
    return words if len(words) <= NAME_LENGTH else f"{words[:NAME_LENGTH]}…"


def _name(node: ast.stmt) -> str:
    """Return what a statement is called, so that it is found again in another release."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.Assign():
            return ", ".join(map(_short, node.targets))
        case ast.AnnAssign():
            return _short(node.target)
        case ast.AugAssign():
            return f"{_short(node.target)} +="
        case ast.Import():
            return f"import {node.names[0].name}"
        case ast.ImportFrom():
            return f"from {'.' * node.level}{node.module or ''}"
        case ast.Expr(value=ast.Constant(value=str())):
            return "docstring"
        case ast.Expr(value=ast.Call(func=function, args=args)):
            return f"{_short(function)}({_short(args[0]) if args else ''})"
        case ast.Try():
            return f"try {_short(node.body[0])}"
        case _:  # its first line, without the colon
            return _shortened(ast.unparse(node).partition("\n")[0].removesuffix(":"))
