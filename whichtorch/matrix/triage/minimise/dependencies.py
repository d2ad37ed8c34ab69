"""What the statements that failed may depend on, read from the names: all else is tried without at once."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import layout_of
from whichtorch.matrix.source.names import bound
from whichtorch.matrix.source.syntax import (
    Definition,
    Function,
    Scope,
    blocks_in,
    blocks_of,
    called_name,
    head_nodes,
    in_head,
    is_docstring,
    statements_in,
    words,
)
from whichtorch.matrix.triage.minimise.tree_edit import Edit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

_METHODS = {"forward", "__call__"}  # what a call of an object runs
_CONTAINERS = {"list", "dict", "set", "defaultdict", "deque", "OrderedDict", "Counter"}
_EMPTY = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp)


def drop_unneeded(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of all that no statement which failed depends on; nothing where these are not known."""
    slices = _Slice(program.tree)
    for statement in _failing(program, state):
        slices.need(statement)
    if slices.needed:
        for outer in [*blocks_in(program.tree)]:
            yield from _left_out(outer, slices.needed)


def _failing(program: Program, state: ReductionState) -> Iterator[ast.stmt]:
    """Yield the innermost statements in which the script was; where these are not known, the last that ran."""
    found = [
        statement
        for statement in statements_in(program.tree)
        if state.is_open(statement) and not any(state.is_open(each) for block in blocks_in(statement) for each in block)
    ]
    yield from found
    if not found and state.executed:
        runs = [each for each in program.tree.body if not isinstance(each, Definition)]
        ran = [each for each in runs if not state.executed.isdisjoint(range(each.lineno, (each.end_lineno or 0) + 1))]
        yield from ran[-1:]


def _left_out(block: list[ast.stmt], needed: set[ast.stmt]) -> Iterator[Edit]:
    for statement in block:
        if isinstance(statement, ast.Pass):
            continue
        if statement not in needed:
            yield Edit(key=f"unneeded {words(statement)}", replaced={statement: []})
        else:
            yield from (edit for inner in blocks_in(statement) for edit in _left_out(inner, needed))


class _Slice:
    """The statements that are needed, and who binds which name in which scope."""

    def __init__(self, tree: ast.Module) -> None:
        self.needed: set[ast.stmt] = set()
        self._layout = layout_of(tree)
        self._binders: dict[tuple[ast.AST, str], list[ast.stmt]] = defaultdict(list)
        self._fields: dict[str, list[ast.stmt]] = defaultdict(list)
        self._changes: dict[str, list[ast.stmt]] = defaultdict(list)  # by the name of what they change
        for statement in statements_in(tree):
            self._note(statement)

    def _note(self, statement: ast.stmt) -> None:
        scope = self._layout.scope(statement)
        own = [statement] if isinstance(statement, Definition) else head_nodes(statement)
        for name in bound([statement] if not list(blocks_in(statement)) else own):
            self._binders[scope, name].append(statement)
            if isinstance(scope, ast.ClassDef):
                self._fields[name].append(statement)
        for node in in_head(statement):
            match node:
                case ast.Attribute(attr=attribute, ctx=ast.Store()):
                    self._fields[attribute].append(statement)
                case ast.Subscript(value=ast.Name(id=name), ctx=ast.Store()):
                    self._changes[name].append(statement)
                case ast.Subscript(value=ast.Attribute(attr=attribute), ctx=ast.Store()):
                    self._fields[attribute].append(statement)
                case ast.Constant(value=str(text)) if text.isidentifier() and isinstance(statement, ast.Expr):
                    self._fields[text].append(statement)  # as `setattr` and its like do it
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
                self._changes[name].append(statement)
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Attribute(attr=attribute)))):
                self._changes[f".{attribute}"].append(statement)

    def need(self, statement: ast.stmt) -> None:
        """Keep a statement, what it stands in, and what these need."""
        if statement in self.needed:
            return
        self.needed.add(statement)
        for outer in self._layout.outward(statement):
            if isinstance(outer, ast.stmt):
                self.need(outer)
        if isinstance(statement, ast.ClassDef):
            self._need_class(statement)
        scope = self._layout.scope(statement)
        for node in in_head(statement):
            match node:
                case ast.Name(id=name, ctx=ast.Load()):
                    self._need_name(scope, name)
                case ast.Attribute(attr=attribute, ctx=ast.Load()):
                    self._need_field(attribute)
        if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            self._need_name(scope, statement.target.id)

    def _need_name(self, scope: Scope, name: str) -> None:
        while (scope, name) not in self._binders and scope is not self._layout.tree:
            scope = self._layout.scope(scope)
        for statement in self._binders.get((scope, name), ()):
            self._need_binder(statement)
            if isinstance(statement, ast.Assign) and _is_container(statement.value):
                for change in self._changes[name]:
                    self.need(change)

    def _need_field(self, attribute: str) -> None:
        for statement in self._fields[attribute]:
            self._need_binder(statement)
            if isinstance(statement, ast.Assign) and _is_container(statement.value):
                for change in self._changes[f".{attribute}"]:
                    self.need(change)

    def _need_binder(self, statement: ast.stmt) -> None:
        if isinstance(statement, Function):
            self._need_function(statement)
        else:
            self.need(statement)

    def _need_function(self, function: Function) -> None:
        if function in self.needed:
            return
        self.need(function)
        for statement in (each for block in blocks_of(function) for each in block):
            if self._layout.scope(statement) is function and _gives_back(statement):
                self.need(statement)

    def _need_class(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            if isinstance(statement, Function):
                if statement.name in _METHODS or statement.name.startswith("__"):
                    self._need_function(statement)
            elif not is_docstring(statement):
                self.need(statement)


def _gives_back(statement: ast.stmt) -> bool:
    """Return whether a function's caller may notice a statement: a result, or the set-up of a base class."""
    if isinstance(statement, (ast.Return, ast.Global, ast.Nonlocal)):
        return True
    inner = [node for part in head_nodes(statement) for node in ast.walk(part)]
    return any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) or (isinstance(node, ast.Name) and node.id == "super")
        for node in inner
    )


def _is_container(node: ast.expr) -> bool:
    return isinstance(node, _EMPTY) or (isinstance(node, ast.Call) and called_name(node) in _CONTAINERS)
