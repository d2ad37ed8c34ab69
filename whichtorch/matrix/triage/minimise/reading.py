"""What stands where in a tree: blocks, heads, scopes, and who reads or binds a name."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Function = ast.FunctionDef | ast.AsyncFunctionDef
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module | ast.ClassDef
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BLOCKS = ("body", "orelse", "finalbody")
_PARTS = ("handlers", "cases")


def blocks_in(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a statement or module itself, those of its handlers and cases, too."""
    if isinstance(node, (ast.Lambda, ast.IfExp)):
        return
    for name in _BLOCKS:
        if block := getattr(node, name, None):
            yield block
    for name in _PARTS:
        for part in getattr(node, name, ()):
            yield part.body


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield all blocks, an outer one before those in it."""
    for block in blocks_in(node):
        yield block
        for statement in block:
            yield from blocks_of(statement)


def statements_in(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements, those of the outer block first."""
    for block in blocks_of(node):
        yield from block


def head_nodes(statement: ast.stmt) -> list[ast.AST]:
    """Return what a statement consists of, without the blocks in it."""
    inner = {id(node) for block in blocks_in(statement) for node in block}
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.ExceptHandler):
            found += [child.type] if child.type else []
        elif isinstance(child, ast.match_case):
            found += [child.pattern, *([child.guard] if child.guard else [])]
        elif id(child) not in inner:
            found.append(child)
    return found


def in_head(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield all nodes of a statement, without the blocks in it."""
    for node in head_nodes(statement):
        yield from ast.walk(node)


def loads_in(*nodes: ast.AST) -> Counter[str]:
    """Count how often each name is read."""
    return Counter(
        each.id
        for node in nodes
        for each in ast.walk(node)
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
    )


def stores_in(*nodes: ast.AST) -> Counter[str]:
    """Count how often each name is bound, as anything, in whatever scope."""
    found: Counter[str] = Counter()
    for node in nodes:
        for each in ast.walk(node):
            match each:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                    found[name] += 1
                case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                    found[name] += 1
                case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                    found[name] += 1
                case ast.alias(name=name, asname=asname):
                    found[asname or name.partition(".")[0]] += 1
    return found


def is_constant(node: ast.AST | None) -> bool:
    """Return whether an expression is made of constants alone."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return is_constant(operand)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return all(map(is_constant, elements))
        case ast.Dict(keys=keys, values=values):
            return all(map(is_constant, keys)) and all(map(is_constant, values))
        case _:
            return False


def is_simple(node: ast.AST) -> bool:
    """Return whether an expression may stand wherever its value is wanted, as often as it is."""
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=value):
            return is_simple(value)
        case ast.UnaryOp(operand=ast.Constant()):
            return True
        case ast.Tuple(elts=elements):
            return all(map(is_constant, elements))
        case _:
            return isinstance(node, ast.Constant)


def is_docstring(statement: ast.stmt) -> bool:
    """Return whether a statement is a string or another constant that nobody reads."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def words(node: ast.AST) -> str:
    """Return a node's text on one line, as a part of keys."""
    try:
        return " ".join(ast.unparse(node).split())
    except (AttributeError, ValueError, TypeError):  # a node that has no text of its own
        return type(node).__name__


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """Where the nodes of a tree stand."""

    tree: ast.Module

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """What each node stands in."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def loads(self) -> dict[str, list[ast.Name]]:
        """Where each name is read."""
        found = defaultdict(list)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found[node.id].append(node)
        return found

    @cached_property
    def assigned(self) -> dict[str, list[ast.Name]]:
        """Where each name is assigned."""
        found = defaultdict(list)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found[node.id].append(node)
        return found

    @cached_property
    def stores(self) -> Counter[str]:
        """How often each name is bound, in whatever scope."""
        return stores_in(self.tree)

    @cached_property
    def blocks(self) -> dict[ast.stmt, list[ast.stmt]]:
        """The block that each statement stands in."""
        return {statement: block for block in blocks_of(self.tree) for statement in block}

    def outward(self, node: ast.AST) -> Iterator[ast.AST]:
        """Yield what a node stands in, from the inside out."""
        while (found := self.parents.get(node)) is not None:
            node = found
            yield node

    def statement(self, node: ast.AST) -> ast.stmt | None:
        """Return the innermost statement that a node stands in, or is."""
        return next((each for each in (node, *self.outward(node)) if isinstance(each, ast.stmt)), None)

    def scope(self, node: ast.AST) -> Scope:
        """Return the function, class or module that a node stands in."""
        return next((each for each in self.outward(node) if isinstance(each, Scope)), self.tree)

    def times_bound(self, name: str, place: ast.AST) -> int:
        """Return how often the scope that a node stands in assigns a name."""
        scope = self.scope(place)
        return sum(self.scope(node) is scope for node in self.assigned.get(name, ()))

    def reads(self, name: str, place: ast.AST) -> list[ast.Name]:
        """Return where a name is read that the scope of a node binds, in that scope and in those that see it."""
        own = self.scope(place)
        found = [(node, self.scope(node)) for node in self.loads.get(name, ())]
        return [node for node, scope in found if scope is own or not stores_in(scope)[name]]

    def is_inside(self, node: ast.AST, outer: ast.AST) -> bool:
        """Return whether a node is within another, or that itself."""
        return node is outer or any(each is outer for each in self.outward(node))

    def fresh(self, name: str, taken: Sequence[str] | set[str] = ()) -> str:
        """Return a name like this that nothing in the tree has."""
        used = {*self.loads, *self.stores, *taken}
        numbers = iter(range(2, 10_000))
        found = name
        while found in used:
            found = f"{name}_{next(numbers)}"
        return found


@lru_cache(maxsize=4)
def layout_of(tree: ast.Module) -> Layout:
    """Return where the nodes of a tree stand, found once for all that look at it in a row."""
    return Layout(tree=tree)
