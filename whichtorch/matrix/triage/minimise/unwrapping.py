"""Blocks without the statement around them: branches, loops, contexts, `async`; and the first of many items."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.syntax import Definition, blocks_in, statements_in, words
from whichtorch.matrix.triage.minimise.tree_edit import Edit, Program, assignment, called, copied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.matrix.triage.minimise.reduction import ReductionState

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp)


def unwrap_blocks(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield edits that leave a block alone in place of a statement around it: of several the one that ran."""
    for statement in statements_in(program.tree):
        if block := _block(statement, state):
            is_loop = isinstance(statement, _LOOPS)
            replaced: dict[ast.AST, list[ast.stmt]] = {statement: block}
            for each in block if is_loop else ():
                replaced |= {leave: [] for leave in _leaving(each)}
            yield Edit(key=f"unwrap {words(statement)}{len(block)}", replaced=replaced)


def _block(statement: ast.stmt, state: ReductionState) -> list[ast.stmt]:
    """Return what may stand in place of a statement."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            return max((body, orelse), key=lambda branch: bool(branch) and _ran(branch, state))
        case ast.For(target=target, iter=iterable, body=body) | ast.AsyncFor(target=target, iter=iterable, body=body):
            return [*_first(target, iterable, statement), *body]
        case ast.While(body=body):
            return body
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            entered = [(item.optional_vars, item.context_expr) for item in items]
            return [*(assignment(target, value, statement) for target, value in entered if target), *body]
        case ast.Try(body=body, orelse=orelse, finalbody=last):
            return [*body, *orelse, *last]
        case ast.Match(cases=cases):
            return max((each.body for each in cases), key=lambda branch: _ran(branch, state))
        case _:
            return []


def _ran(block: Sequence[ast.stmt], state: ReductionState) -> bool:
    lines = range(block[0].lineno, (block[-1].end_lineno or block[-1].lineno) + 1)
    return state.executed is None or not state.executed.isdisjoint(lines)


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


def keep_first_element(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that make a list of one element of a comprehension."""
    for node in ast.walk(program.tree):
        if isinstance(node, _COMPREHENSIONS) and len(node.generators) == 1:
            yield Edit(key=f"list {words(node)}", replaced={node: [_listed(node)]})


def _listed(node: ast.ListComp | ast.GeneratorExp | ast.SetComp) -> ast.expr:
    """Return a list of the first element of a comprehension."""
    generator = node.generators[0]
    first = first_of(generator.iter)
    values: dict[str, ast.expr] = {}
    match generator.target:
        case ast.Name(id=name):
            values[name] = first
        case ast.Tuple(elts=names):
            for place, each in enumerate(names):
                if isinstance(each, ast.Name):
                    values[each.id] = ast.Subscript(value=first, slice=ast.Constant(value=place), ctx=ast.Load())
    uses = [each for each in ast.walk(node.elt) if isinstance(each, ast.Name) and each.id in values]
    return ast.List(elts=copied([node.elt], {use: [values[use.id]] for use in uses}), ctx=ast.Load())


def inline_first_items(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put the first item of a list in place of `next(iter(list))`, whatever is around the list."""
    layout = layout_of(program.tree)
    for node in ast.walk(program.tree):
        match node:
            case ast.Call(func=ast.Name(id="next"), args=[ast.Call(func=ast.Name(id="iter"), args=[inner])]):
                pass
            case ast.Subscript(value=inner, slice=ast.Constant(value=int()), ctx=ast.Load()):
                pass
            case _:
                continue
        binder = _binder(inner.id, layout) if isinstance(inner, ast.Name) else None
        if binder and (item := _item(binder.value)):
            yield Edit(key=f"first {words(node)}", replaced={node: [inner], binder.value: [item]})
        elif item := _item(inner):
            yield Edit(key=f"first {words(node)}", replaced={node: [item]})


def _binder(name: str, layout: Layout) -> ast.Assign | None:
    """Return the assignment of a variable that is bound once and read once."""
    if layout.stores[name] != 1 or len(layout.loads.get(name, ())) != 1:
        return None
    for statement in statements_in(layout.tree):
        match statement:
            case ast.Assign(targets=[ast.Name(id=target)]) if target == name:
                return statement
    return None


def _item(node: ast.expr) -> ast.expr | None:
    """Return the first element of a list, or of the list that a call is given or unpacks."""
    match node:
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
            return _item(first.value) if isinstance(first, ast.Starred) else first
        case ast.Call(args=[ast.Starred(value=inner), *_]) | ast.Call(args=[ast.List() as inner], keywords=[]):
            return _item(inner)
        case _:
            return None
