"""Statements left out: those that nothing depends on, any other; and blocks that stand alone."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache

from whichtorch.base.grouping import reached
from whichtorch.source.names import Layout, bound, has_self, layout_of, loads_in
from whichtorch.source.syntax import (
    Definition,
    Function,
    Scope,
    blocks_in,
    called_name,
    head_nodes,
    in_head,
    is_constant,
    is_docstring,
    is_simple,
    statements_in,
    words,
)
from whichtorch.triage.minimise.tree_edit import Edit, Program, ReductionState, assignment, called

MOST_ROUNDS = 8  # a deleted statement may have been the last one to use another
_CONTAINERS = {"list", "dict", "set", "defaultdict", "deque", "OrderedDict", "Counter"}
_EMPTY = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp)


def drop_any_statement(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of every statement that it did not fail in: outer ones first, the last one first."""
    waiting: list[tuple[ast.AST, list[ast.stmt]]] = [(program.tree, program.tree.body)]
    for owner, block in waiting:  # it grows by the blocks of the next level
        place = getattr(owner, "name", "") or type(owner).__name__
        for statement in reversed(block):
            if not state.fails_in(statement) and not isinstance(statement, ast.Pass):
                yield Edit(key=f"delete {place} {words(statement)}", replaced={statement: []})
            waiting += [(statement, each) for each in blocks_in(statement)]


def drop_decorators(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of decorators."""
    for node in ast.walk(program.tree):
        for decorator in getattr(node, "decorator_list", ()):
            yield Edit(key=f"decorator {words(decorator)}", replaced={decorator: []})


def cleaned(program: Program, *, before: Program) -> Program:
    """Return a program without what nothing uses any more; what was unused before already stays."""
    known = _unused_keys(before)
    for _ in range(MOST_ROUNDS):
        edits = [edit for edit in unused(program) if edit.key not in known]
        if not edits:
            break
        program = program.edited(edits)
    return program


@lru_cache(maxsize=4)
def _unused_keys(program: Program) -> frozenset[str]:
    return frozenset(edit.key for edit in unused(program))


def unused(program: Program) -> Iterator[Edit]:
    """Yield the deletion of each name that is bound and never read, where binding it does nothing else."""
    loads = loads_in(program.tree)
    shared = {
        name for node in ast.walk(program.tree) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names
    }
    for statement in statements_in(program.tree):
        yield from _unused_names(statement, loads, shared)


def _unused_names(statement: ast.stmt, loads: Counter[str], shared: set[str]) -> Iterator[Edit]:
    match statement:
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            for alias in aliases:
                name = alias.asname or alias.name.partition(".")[0]
                if name != "*" and not loads[name] and getattr(statement, "module", "") != "__future__":
                    yield Edit(key=f"unused import {name}", replaced={alias: []})
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            is_plain = not statement.decorator_list and not has_self(statement)
            if is_plain and not loads[name] - loads_in(statement)[name]:
                yield Edit(key=f"unused {name}", replaced={statement: []})
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in shared and not loads[name]:
            if is_constant(value) or is_simple(value) or isinstance(value, ast.Lambda):
                yield Edit(key=f"unused {name} =", replaced={statement: []})


def drop_unneeded(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of all that no statement which failed depends on; nothing where these are not known."""
    layout, needed = layout_of(program.tree), _needed(program, state)
    for statement in statements_in(program.tree) if needed else ():
        outer = layout.statement(layout.parents[statement])
        if statement not in needed and (outer is None or outer in needed) and not isinstance(statement, ast.Pass):
            yield Edit(key=f"unneeded {words(statement)}", replaced={statement: []})


def _failing(program: Program, state: ReductionState) -> Iterator[ast.stmt]:
    """Yield the innermost statements in which the script was; where these are not known, the last of its own."""
    found = [
        statement
        for statement in statements_in(program.tree)
        if state.is_open(statement) and not any(state.is_open(each) for block in blocks_in(statement) for each in block)
    ]
    yield from found or [each for each in program.tree.body if not isinstance(each, Definition)][-1:]


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

    def needs(statement: ast.stmt) -> Iterator[ast.stmt]:
        yield from (each for each in layout.outward(statement) if isinstance(each, ast.stmt))
        if isinstance(statement, ast.ClassDef):
            yield from filter(_is_run, statement.body)
        if isinstance(statement, Function) and not state.is_open(statement):  # it returned
            own = (each for each in statements_in(statement) if layout.scope(each) is statement)
            yield from (each for each in own if _gives_back(each))
        for name in _read_by(statement):
            scope = _scope(layout, statement, name)
            while (scope, name) not in binders and scope is not program.tree:
                scope = layout.scope(scope)
            binding = binders.get((scope, name), [])
            yield from binding
            if any(isinstance(each, ast.Assign) and _is_container(each.value) for each in binding):
                yield from changes[name]

    return reached(_failing(program, state), needs)


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


def unwrap_blocks(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that leave a block alone in place of a statement around it."""
    for statement in statements_in(program.tree):
        for place, block in enumerate(filter(None, _blocks(statement))):
            is_loop = isinstance(statement, _LOOPS)
            replaced: dict[ast.AST, list[ast.stmt]] = {statement: block}
            for each in block if is_loop else ():
                replaced |= {leave: [] for leave in _leaving(each)}
            yield Edit(key=f"unwrap {place} {words(statement)}{len(block)}", replaced=replaced)


def _blocks(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield what may stand in place of a statement."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            yield from (body, orelse)
        case ast.For(target=target, iter=iterable, body=body) | ast.AsyncFor(target=target, iter=iterable, body=body):
            yield [*_first(target, iterable, statement), *body]
        case ast.While(body=body):
            yield body
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            entered = [(item.optional_vars, item.context_expr) for item in items]
            yield [*(assignment(target, value, statement) for target, value in entered if target), *body]
        case ast.Try(body=body, orelse=orelse, finalbody=last):
            yield [*body, *orelse, *last]
        case ast.Match(cases=cases):
            yield from (each.body for each in cases)


def _leaving(statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statements that leave or go on with the loop that a statement stands in."""
    if isinstance(statement, (ast.Break, ast.Continue)):
        yield statement
    elif isinstance(statement, _LOOPS):
        yield from (leave for each in statement.orelse for leave in _leaving(each))
    elif not isinstance(statement, Definition):
        yield from (leave for block in blocks_in(statement) for each in block for leave in _leaving(each))


def _first(target: ast.expr, iterable: ast.expr, place: ast.stmt) -> list[ast.stmt]:
    """Return the assignment of a loop's first turn."""
    match iterable, target:
        case ast.Call(func=ast.Name(id="enumerate"), args=[inner, *_]), ast.Tuple(elts=[number, item]):
            return [assignment(number, ast.Constant(value=0), place), *_first(item, inner, place)]
        case ast.Call(func=ast.Name(id="zip"), args=args), ast.Tuple(elts=targets) if len(args) == len(targets):
            return [
                each
                for each_target, inner in zip(targets, args, strict=True)
                for each in _first(each_target, inner, place)
            ]
        case _:
            return [assignment(target, first_of(iterable), place)]


def first_of(iterable: ast.expr) -> ast.expr:
    """Return the expression of the first of several."""
    match iterable:
        case ast.Call(func=ast.Name(id="range"), args=[_]):
            return ast.Constant(value=0)
        case ast.Call(func=ast.Name(id="range"), args=[start, *_]):
            return start
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]) if not isinstance(first, ast.Starred):
            return first
        case ast.Call(func=ast.Name(id="list" | "tuple" | "iter"), args=[inner]):
            return first_of(inner)
    return called("next", called("iter", iterable))


def drop_async(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield one edit that makes all coroutines plain functions."""
    replaced: dict[ast.AST, list[ast.AST]] = {}
    for node in ast.walk(program.tree):
        match node:
            case ast.AsyncFunctionDef():
                plain = ast.FunctionDef(**dict(ast.iter_fields(node)))
                replaced[node] = [ast.copy_location(plain, node)]
            case ast.AsyncFor() | ast.AsyncWith():
                kind = ast.For if isinstance(node, ast.AsyncFor) else ast.With
                replaced[node] = [ast.copy_location(kind(**dict(ast.iter_fields(node))), node)]
            case ast.Await(value=value):
                replaced[node] = [value]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="asyncio"), attr="run"), args=[value, *_]):
                replaced[node] = [value]
    if replaced:
        yield Edit(key="in step", replaced=replaced)
