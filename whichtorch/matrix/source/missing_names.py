"""What keeps a candidate from being tried at all: it does not compile, or uses names that nothing binds.

On doubt nothing is said: the oracle decides.
"""

from __future__ import annotations

import ast
import builtins
import warnings
from typing import TYPE_CHECKING

from whichtorch.matrix.source.names import bound, free_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_GIVEN = frozenset(dir(builtins)) | {
    *("__name__", "__file__", "__doc__", "__builtins__", "__spec__", "__loader__", "__package__", "__annotations__"),
    *("__class__", "__module__", "__qualname__", "__path__", "__debug__", "__cached__"),
}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def compiles(source: str) -> bool:
    """Return whether Python can compile a text."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(source, "candidate.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return False
    return True


def missing(tree: ast.Module, source: str) -> frozenset[str]:
    """Return the names that a text, which compiles, uses without or before binding them."""
    return unbound(tree, source) | frozenset(_early(tree))


def unbound(tree: ast.Module, source: str) -> frozenset[str]:
    """Return the names that a text uses and that nothing in it binds; none where it imports all of a module."""
    stars = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.names[0].name == "*")
    if any(stars):
        return frozenset()
    return frozenset(free_names(source) - _GIVEN)


def _early(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a scope uses in a statement above all that bind them."""
    yield from _Order(tree.body, set()).unready(tree.body)
    for node in ast.walk(tree):
        if isinstance(node, _FUNCTIONS):
            shared = {
                name for each in ast.walk(node) if isinstance(each, (ast.Global, ast.Nonlocal)) for name in each.names
            }
            yield from _Order(node.body, shared).unready(node.body)


class _Order:
    """The names of one scope, and those of them that are bound by now, whichever branches were taken."""

    def __init__(self, body: Sequence[ast.stmt], shared: set[str]) -> None:
        self._own = bound(body) - shared - _GIVEN
        self._ready: set[str] = set()

    def unready(self, body: Iterable[ast.stmt]) -> Iterator[str]:
        """Yield the own names that statements use and none above binds."""
        for statement in body:
            inner = list(_bodies(statement))
            head = [node for node in ast.iter_child_nodes(statement) if not any(node in block for block in inner)]
            walrus = {name for node in head for name in _walrus(node)}
            targets = bound([statement]) if not inner else walrus | {name for node in head for name in bound([node])}
            if not isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
                loads = {name for node in head for name in _loads(node)}
                if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
                    loads.add(statement.target.id)
                yield from (loads & self._own) - self._ready - walrus
                self._ready |= targets | set(_caught(statement))
                for block in inner:
                    yield from self.unready(node for node in block if isinstance(node, ast.stmt))
            self._ready |= bound([statement])


def _bodies(statement: ast.stmt) -> Iterator[Sequence[ast.AST]]:
    """Yield the blocks of a statement; of `try` and `match` those of their parts."""
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        block = getattr(statement, name, None)
        if not isinstance(block, list):
            continue
        if name in {"handlers", "cases"}:
            yield block
            yield from (part.body for part in block)
        else:
            yield block


def _caught(statement: ast.stmt) -> Iterator[str]:
    """Yield what `except` and `case` bind for the blocks below them."""
    for part in (*getattr(statement, "handlers", ()), *getattr(statement, "cases", ())):
        yield from bound(
            [ast.ExceptHandler(type=None, name=part.name, body=[])] if hasattr(part, "name") else [part.pattern]
        )


def _walrus(node: ast.AST) -> Iterator[str]:
    return (each.target.id for each in ast.walk(node) if isinstance(each, ast.NamedExpr))


def _loads(node: ast.AST) -> Iterator[str]:
    """Yield the names that are read when an expression is evaluated; not what a lambda reads when it is called."""
    if isinstance(node, ast.Name):
        if isinstance(node.ctx, ast.Load):
            yield node.id
    elif isinstance(node, _COMPREHENSIONS):
        own = {name for generator in node.generators for name in bound([generator.target])}
        yield from {name for child in ast.iter_child_nodes(node) for name in _loads(child)} - own
    elif not isinstance(node, ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _loads(child)
