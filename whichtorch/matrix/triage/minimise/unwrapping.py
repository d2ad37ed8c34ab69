"""Blocks without what is around them: branches, loops that run once, contexts, `try`, `async`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.syntax import Definition, blocks_in, statements_in, words
from whichtorch.matrix.triage.minimise.tree_edit import Edit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

_LOOPS = (ast.For, ast.AsyncFor, ast.While)


def unwrap_blocks(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield edits that leave a block alone in place of a statement around it: of several the one that ran."""
    for statement in statements_in(program.tree):
        if blocks := _blocks(statement, state):
            yield _unwrapping(statement, blocks[0])


def _unwrapping(statement: ast.stmt, block: Sequence[ast.stmt]) -> Edit:
    leaving: dict[ast.AST, list[ast.AST]] = (
        {leave: list[ast.AST]() for each in block for leave in _leaving(each)} if isinstance(statement, _LOOPS) else {}
    )
    return Edit(key=f"unwrap {words(statement)}{len(block)}", replaced={statement: block, **leaving})


def _blocks(statement: ast.stmt, state: ReductionState) -> list[list[ast.stmt]]:
    """Return what may stand in place of a statement, the likeliest first."""
    match statement:
        case ast.If(body=body, orelse=orelse):
            branches = [branch for branch in (body, orelse) if branch]
            return sorted(branches, key=lambda branch: not _ran(branch, state))
        case ast.For(target=target, iter=iterable) | ast.AsyncFor(target=target, iter=iterable):
            return [[*_first(target, iterable, statement), *statement.body], [*statement.body]]
        case ast.While(body=body):
            return [body]
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            entered = [
                _assigned(item.optional_vars, item.context_expr, statement) for item in items if item.optional_vars
            ]
            return [[*entered, *body], body] if entered else [body]
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=last):
            whole = [*body, *orelse, *last]
            return [whole, *([handler.body for handler in handlers])]
        case ast.Match(cases=cases):
            return sorted((each.body for each in cases), key=lambda branch: not _ran(branch, state))
        case _:
            return []


def _ran(block: Sequence[ast.stmt], state: ReductionState) -> bool:
    lines = (
        range(block[0].lineno, (block[-1].end_lineno or block[-1].lineno) + 1) if hasattr(block[0], "lineno") else ()
    )
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
            return [_assigned(number, ast.Constant(value=0), place), *_first(item, inner, place)]
        case ast.Call(func=ast.Name(id="zip"), args=args), ast.Tuple(elts=targets) if len(args) == len(targets):
            return [
                each
                for each_target, inner in zip(targets, args, strict=True)
                for each in _first(each_target, inner, place)
            ]
        case _:
            return [_assigned(target, first_of(iterable), place)]


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
    items = ast.Call(func=ast.Name(id="iter", ctx=ast.Load()), args=[iterable], keywords=[])
    return ast.Call(func=ast.Name(id="next", ctx=ast.Load()), args=[items], keywords=[])


def _assigned(target: ast.expr, value: ast.expr, place: ast.stmt) -> ast.stmt:
    return ast.copy_location(ast.Assign(targets=[target], value=value), place)


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
