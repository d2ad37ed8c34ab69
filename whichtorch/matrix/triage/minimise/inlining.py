"""Functions that are called from one place stand there; methods become functions of the class's only object."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.names import dotted, loads_in
from whichtorch.matrix.source.syntax import (
    COMPREHENSIONS,
    is_docstring,
    is_simple,
    statements_in,
)
from whichtorch.matrix.triage.minimise.arguments import arguments_at, inlined
from whichtorch.matrix.triage.minimise.deletion import hints_of
from whichtorch.matrix.triage.minimise.tree_edit import Edit, Program, assignment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.source.syntax import Function
    from whichtorch.matrix.triage.minimise.edit_search import ReductionState

_ONCE = (
    ast.Assign,
    ast.AnnAssign,
    ast.AugAssign,
    ast.Expr,
    ast.Return,
    ast.Assert,
    ast.If,
    ast.For,
    ast.With,
    ast.Raise,
)
MOST_PLACES = 4  # that a function of one line is put into


def inline_functions(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put a function's body where it is called, from one place, or from few where it is short."""
    layout = layout_of(program.tree)
    for function, uses in _functions(layout):
        is_sure = layout.stores[function.name] == 1 and (not function.decorator_list or _is_context(function))
        if is_sure and (edit := _inlining(function, uses, layout) or _generator(function, uses, layout)):
            yield edit


def _functions(layout: Layout) -> Iterator[tuple[ast.FunctionDef, list[ast.Name]]]:
    """Yield the functions that are neither methods nor recursive, with the places where they are named."""
    for function in statements_in(layout.tree):
        if isinstance(function, ast.FunctionDef) and not isinstance(layout.parents[function], ast.ClassDef):
            uses = layout.loads.get(function.name, [])
            if uses and not any(layout.is_inside(use, function) for use in uses):
                yield function, uses


def _inlining(function: Function, uses: list[ast.Name], layout: Layout) -> Edit | None:
    """Return the edit that puts a function where it is called; None where that is not certain to be the same."""
    calls = [layout.parents[use] for use in uses]
    if _yields(function) or function.decorator_list or len(calls) > (MOST_PLACES if len(function.body) == 1 else 1):
        return None
    replaced: dict[ast.AST, list[ast.AST]] = {function: []}
    for use, call in zip(uses, calls, strict=True):
        placed = _placed(function, call, layout) if isinstance(call, ast.Call) and call.func is use else None
        if placed is None or replaced.keys() & placed.keys():
            return None
        replaced |= placed
    return Edit(key=f"inline {function.name}", replaced=replaced)


def _placed(function: Function, call: ast.Call, layout: Layout) -> dict[ast.AST, list[ast.AST]] | None:
    """Return what stands in place of one call and its statement."""
    found = inlined(function, call, layout)
    statement = layout.statement(call)
    if found is None or statement is None:
        return None
    is_whole = isinstance(statement, ast.Expr) and statement.value is call
    if is_whole and (found.value is None or is_simple(found.value)):
        return {statement: [*found.above, *([] if found.above else [ast.Pass()])]}
    value = found.value or ast.Constant(value=None)
    if not found.above:
        return {call: [value]}
    repeated = (ast.Lambda, ast.IfExp, ast.BoolOp, *COMPREHENSIONS)
    between = list(layout.outward(call))
    between = between[: between.index(statement)]
    if not isinstance(statement, _ONCE) or any(isinstance(node, repeated) for node in between):
        return None
    return {statement: [*found.above, statement], call: [value]}


def _yields(function: ast.AST) -> bool:
    kinds = (ast.Yield, ast.YieldFrom, ast.Await)
    return any(isinstance(node, kinds) for node in ast.walk(function))


def _generator(function: ast.FunctionDef, uses: list[ast.Name], layout: Layout) -> Edit | None:
    """Return the edit that puts a loop's or a context's body in place of the only `yield` of its generator."""
    yields = [node for node in ast.walk(function) if isinstance(node, (ast.Yield, ast.YieldFrom))]
    call = layout.parents[uses[0]]
    if len(uses) != 1 or len(yields) != 1 or not isinstance(call, ast.Call) or call.func is not uses[0]:
        return None
    loop = layout.parents[call]
    body = inlined(function, call, layout)
    marks = [each for top in body.above for each in (top, *statements_in(top))] if body else []
    mark = next(filter(_yielded, marks), None)
    value = _yielded(mark) if mark else None
    if body is None or mark is None or value is None:
        return None
    place: ast.stmt | None
    match loop, layout.parents[loop]:
        case ast.For(iter=iterable, target=target, body=block) as place, _ if iterable is call and not _leaves(loop):
            targets = [target]
        case ast.withitem(optional_vars=target), ast.With(items=[_], body=block) as place if _is_context(function):
            targets = [target] if target else []
        case _:
            place, block = _first_taken(call, layout), []
            targets = place.targets if place else []
    if place is None:
        return None
    turn = [*(assignment(each, value, place) for each in targets), *block]
    return Edit(key=f"inline {function.name}", replaced={function: [], place: body.above, mark: turn})


def _is_context(function: ast.FunctionDef) -> bool:
    """Return whether a function is a context manager that is written as a generator."""
    return [dotted(each).rpartition(".")[2] for each in function.decorator_list] == ["contextmanager"]


def _yielded(statement: ast.stmt) -> ast.expr | None:
    """Return what a statement yields; None where it does anything else."""
    match statement:
        case ast.Expr(value=ast.Yield(value=value)):
            return value or ast.Constant(value=None)
        case _:
            return None


def _leaves(loop: ast.For) -> bool:
    return any(isinstance(node, (ast.Break, ast.Continue)) for each in loop.body for node in ast.walk(each))


def _first_taken(call: ast.Call, layout: Layout) -> ast.Assign | None:
    """Return the statement `x = next(iter(call))`, or the same without `iter`."""
    outer = list(layout.outward(call))
    names = [node.func.id for node in outer if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    taken = layout.statement(call)
    if names in (["iter", "next"], ["next"]) and isinstance(taken, ast.Assign) and outer.index(taken) == len(names):
        return taken
    return None


def functions_to_lambdas(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put a lambda where a function of one expression is named."""
    layout = layout_of(program.tree)
    for function, uses in _functions(layout):
        match [statement for statement in function.body if not is_docstring(statement)]:
            case [ast.Return(value=ast.expr() as value) | ast.Expr(value=value)] if not _yields(value):
                if len(uses) > 1:
                    continue
                made: ast.expr = ast.Lambda(args=function.args, body=value)
                for decorator in reversed(function.decorator_list):
                    made = ast.Call(func=decorator, args=[made], keywords=[])
                hints: dict[ast.AST, list[ast.AST]] = {hint: [] for hint in hints_of(function)}
                yield Edit(key=f"lambda {function.name}", replaced={function: [], uses[0]: [made], **hints})


def drop_parameters(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that leave out a parameter that its function does not read, and its arguments."""
    layout = layout_of(program.tree)
    for function in statements_in(program.tree):
        if not isinstance(function, ast.FunctionDef) or function.args.posonlyargs or function.args.kwonlyargs:
            continue
        owner = layout.parents[function]
        called = owner if isinstance(owner, ast.ClassDef) else function
        is_maker = called is owner and function.name == "__init__"
        if called is owner and not is_maker:
            continue
        own, parameters = loads_in(*function.body), function.args.args
        defaults = dict(zip(parameters[::-1], function.args.defaults[::-1], strict=False))
        for place, parameter in enumerate(parameters[is_maker:]):
            given = arguments_at(layout, called.name, place, parameter.arg)
            if given is not None and not own[parameter.arg]:
                gone = [parameter, *given, *([defaults[parameter]] if parameter in defaults else [])]
                yield Edit(key=f"parameter {called.name} {parameter.arg}", replaced={each: [] for each in gone})
