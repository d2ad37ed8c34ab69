"""What the statements that failed may depend on, read from the names: all else is tried without at once."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.names import bound
from whichtorch.matrix.source.syntax import (
    Definition,
    Function,
    Scope,
    blocks_in,
    called_name,
    head_nodes,
    in_head,
    is_docstring,
    statements_in,
    words,
)
from whichtorch.matrix.triage.minimise.tree_edit import Edit, Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState

_CONTAINERS = {"list", "dict", "set", "defaultdict", "deque", "OrderedDict", "Counter"}
_EMPTY = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp)


def drop_unneeded(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of all that no statement which failed depends on; nothing where these are not known."""
    layout, needed = layout_of(program.tree), _needed(program, state)
    for statement in statements_in(program.tree) if needed else ():
        outer = layout.statement(layout.parents[statement])
        if statement not in needed and (outer is None or outer in needed) and not isinstance(statement, ast.Pass):
            yield Edit(key=f"unneeded {words(statement)}", replaced={statement: []})


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


def _needed(program: Program, state: ReductionState) -> set[ast.stmt]:
    """Return the statements that failed, what they stand in, and all that these need."""
    layout = layout_of(program.tree)
    binders: dict[tuple[Scope, str], list[ast.stmt]] = defaultdict(list)  # by scope and "name" or ".attribute"
    changes: dict[str, list[ast.stmt]] = defaultdict(list)  # by the container that they change
    for statement in statements_in(program.tree):
        for name in _bound_by(statement, is_field=isinstance(layout.parents[statement], ast.ClassDef)):
            binders[_scope(layout, statement, name), name].append(statement)
        for name in _changed_by(statement):
            changes[name].append(statement)
    needed, waiting = set[ast.stmt](), [*_failing(program, state)]
    while waiting:
        statement = waiting.pop()
        if statement in needed:
            continue
        needed.add(statement)
        waiting += (each for each in layout.outward(statement) if isinstance(each, ast.stmt))
        if isinstance(statement, ast.ClassDef):
            waiting += filter(_is_run, statement.body)
        if isinstance(statement, Function) and not state.is_open(statement):  # it returned
            own = (each for each in statements_in(statement) if layout.scope(each) is statement)
            waiting += (each for each in own if _gives_back(each))
        for name in _read_by(statement):
            scope = _scope(layout, statement, name)
            while (scope, name) not in binders and scope is not program.tree:
                scope = layout.scope(scope)
            found = binders.get((scope, name), [])
            waiting += found
            if any(isinstance(each, ast.Assign) and _is_container(each.value) for each in found):
                waiting += changes[name]
    return needed


def _scope(layout: Layout, statement: ast.stmt, name: str) -> Scope:
    """Return the scope of a name in a statement. For an attribute it is the module: all scopes share its name."""
    return layout.tree if name.startswith(".") else layout.scope(statement)


def _bound_by(statement: ast.stmt, *, is_field: bool) -> Iterator[str]:
    """Yield the names and attributes that a statement binds itself."""
    is_whole = isinstance(statement, Definition) or not list(blocks_in(statement))
    for name in bound([statement] if is_whole else head_nodes(statement)):
        yield name
        if is_field:
            yield f".{name}"
    for node in in_head(statement):
        match node:
            case ast.Attribute(attr=name, ctx=ast.Store()):
                yield f".{name}"
            case ast.Subscript(value=ast.Attribute(attr=name), ctx=ast.Store()):
                yield f".{name}"
            case ast.Constant(value=str(name)) if name.isidentifier() and isinstance(statement, ast.Expr):
                yield f".{name}"  # as `setattr` and similar calls bind it


def _changed_by(statement: ast.stmt) -> Iterator[str]:
    """Yield what a statement adds something to: "name", ".attribute"."""
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name)))):
            yield name
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Attribute(attr=name)))):
            yield f".{name}"
        case ast.Assign(targets=[ast.Subscript(value=ast.Name(id=name))]):
            yield name
        case ast.AugAssign(target=ast.Subscript(value=ast.Name(id=name))):
            yield name


def _read_by(statement: ast.stmt) -> Iterator[str]:
    """Yield the names and attributes that a statement reads itself."""
    for node in in_head(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Load()):
                yield name
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield f".{name}"
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
        yield statement.target.id


def _is_run(statement: ast.stmt) -> bool:
    """Return whether a statement of a class is run without being named: fields, and what Python and torch call."""
    if isinstance(statement, Function):
        return statement.name == "forward" or statement.name.startswith("__")
    return not is_docstring(statement)


def _gives_back(statement: ast.stmt) -> bool:
    """Return whether a function's caller may notice a statement: a result, or the set-up of a base class."""
    if isinstance(statement, (ast.Return, ast.Global, ast.Nonlocal)):
        return True
    return any(
        isinstance(node, (ast.Yield, ast.YieldFrom)) or (isinstance(node, ast.Name) and node.id == "super")
        for node in in_head(statement)
    )


def _is_container(node: ast.expr) -> bool:
    return isinstance(node, _EMPTY) or (isinstance(node, ast.Call) and called_name(node) in _CONTAINERS)
