"""A tree and edits -> another tree. Nothing is changed in place, so edits of one tree can be tried in any mixture."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from whichtorch.source.names import unbound_names

_BODIES = ("body", "orelse", "finalbody")
NOWHERE = 0  # line of what was not written by anybody
_WIDEST = 50_000  # nodes: a larger program is no reduction

NodeT = TypeVar("NodeT", bound=ast.AST)


class InvalidEditError(Exception):
    """An edit leaves a tree that is no program, or an endless one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Edit:
    """A change of one tree: what stands in place of some of its nodes."""

    key: str  # what it does, in words that find the same edit again in a later tree
    replaced: Mapping[ast.AST, Sequence[ast.AST]]  # nothing, a node, or several statements


@dataclass(frozen=True, kw_only=True, eq=False)
class Program:
    """A tree with its text. Nodes keep the lines of the text that was reduced."""

    tree: ast.Module

    @cached_property
    def source(self) -> str:
        """The text, ends with a line end unless it is empty."""
        text = ast.unparse(self.tree)
        return f"{text}\n" if text else ""

    @cached_property
    def lines(self) -> int:
        """How many lines are not empty."""
        return lines_of(self.source)

    @cached_property
    def size(self) -> tuple[int, int, int]:
        """Non-blank lines, nodes, characters."""
        return self.lines, sum(1 for _ in ast.walk(self.tree)), len(self.source)

    def edited(self, edits: Iterable[Edit]) -> Program:
        """Return the program with some edits of its own tree. Raises InvalidEditError."""
        replaced: dict[ast.AST, Sequence[ast.AST]] = {}
        for edit in edits:
            replaced |= edit.replaced
        return Program(tree=copied([self.tree], replaced)[0])


@dataclass(kw_only=True)
class ReductionState:
    """What is known of the script that is reduced, and what was refused so far."""

    failing_lines: tuple[int, ...] = ()  # those that it was in when it failed, the innermost last
    given: frozenset[str] = frozenset()  # names that nothing binds in the script itself
    max_rejections: int = 4  # in a row, after which the next kind of edit is tried
    refused: set[str] = field(default_factory=set)  # keys of edits that did not work alone
    blocked: set[str] = field(default_factory=set)  # keys of steps that did not work in the program as it was then

    @classmethod
    def of(cls, program: Program, failing_lines: Iterable[int]) -> ReductionState:
        """Return the state before the first question about a program that compiles."""
        return cls(failing_lines=tuple(failing_lines), given=unbound_names(program.source))

    def fails_in(self, statement: ast.AST) -> bool:
        """Return whether the script was in this very statement when it failed, or in something inside of it."""
        return _holds(statement, self.failing_lines[-1:])

    def is_open(self, statement: ast.AST) -> bool:
        """Return whether the script was in a statement, or in what it called, when it failed."""
        return _holds(statement, self.failing_lines)


def _holds(statement: ast.AST, lines: tuple[int, ...]) -> bool:
    first, last = getattr(statement, "lineno", 0), getattr(statement, "end_lineno", 0)
    if any(first <= line <= (last or first) for line in lines):
        return True
    return any(getattr(node, "lineno", 0) in lines for node in ast.walk(statement))


def lines_of(source: str) -> int:
    """Return how many lines of a text are not empty."""
    return sum(bool(line.strip()) for line in source.splitlines())


def load(name: str) -> ast.Name:
    """Return the expression that reads a name."""
    return ast.Name(id=name, ctx=ast.Load())


def called(function: str, *arguments: ast.expr) -> ast.Call:
    """Return the call of a function by its name."""
    return ast.Call(func=load(function), args=[*arguments], keywords=[])


def assignment(target: ast.expr | str, value: ast.expr, place: ast.AST) -> ast.Assign:
    """Return an assignment that stands in the line of another node."""
    stored = ast.Name(id=target, ctx=ast.Store()) if isinstance(target, str) else target
    return ast.copy_location(ast.Assign(targets=[stored], value=value), place)


def copied(
    nodes: Iterable[NodeT], replaced: Mapping[ast.AST, Sequence[ast.AST]], widest: float = _WIDEST
) -> list[NodeT]:
    """Return copies of nodes, with others in place of some inside of them.

    Raises InvalidEditError, also for more than `widest` nodes.
    """
    copier = _Copier(replaced, widest)
    found: list[NodeT] = []
    for node in nodes:
        found += cast("list[NodeT]", copier.copies(node))
    return found


class _Copier:
    """Copies a tree; a replacement may hold nodes of the tree, and even the node that it stands for."""

    def __init__(self, replaced: Mapping[ast.AST, Sequence[ast.AST]], widest: float) -> None:
        self._replaced, self._widest = replaced, widest
        self._open: set[ast.AST] = set()  # nodes whose replacement is being copied
        self._made = 0

    def copies(self, node: ast.AST) -> list[ast.AST]:
        """Return what stands in place of a node."""
        if node not in self._replaced or node in self._open:
            return self._copy(node)
        self._open.add(node)
        found = [copy for other in self._replaced[node] for copy in self.copies(other)]
        self._open.discard(node)
        return found

    def _copy(self, node: ast.AST) -> list[ast.AST]:
        self._made += 1
        if self._made > self._widest:
            raise InvalidEditError
        fields: dict[str, object] = {}
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                fields[name] = [
                    copy for item in value for copy in (self.copies(item) if isinstance(item, ast.AST) else [item])
                ]
            elif isinstance(value, ast.AST) and value._fields:
                found = self.copies(value)
                if len(found) != 1:
                    raise InvalidEditError
                fields[name] = found[0]
            else:
                fields[name] = value
        copy = type(node)(**fields)
        if isinstance(copy, (ast.expr, ast.stmt, ast.ExceptHandler)):
            copy.lineno, copy.end_lineno = getattr(node, "lineno", NOWHERE), getattr(node, "end_lineno", NOWHERE)
        return _fitting(copy)


def _fitting(node: ast.AST) -> list[ast.AST]:
    """Return a node as it may stand: bodies hold something, what is empty goes."""
    if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
        for name in _BODIES:
            body = getattr(node, name, None)
            if isinstance(body, list):
                kept = [statement for statement in body if not isinstance(statement, ast.Pass)]
                setattr(node, name, kept or ([ast.Pass(lineno=NOWHERE, end_lineno=NOWHERE)] if name == "body" else []))
    if isinstance(node, ast.Try) and not (node.handlers or node.finalbody):
        return [*node.body, *node.orelse]
    if isinstance(node, (ast.Import, ast.ImportFrom)) and not node.names:
        return []
    return [node]
