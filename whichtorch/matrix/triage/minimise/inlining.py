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
from whichtorch.matrix.triage.minimise.arguments import inlined
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
    for function in statements_in(program.tree):
        if not isinstance(function, ast.FunctionDef) or layout.stores[function.name] != 1:
            continue
        if function.decorator_list and not _is_context(function):
            continue
        if isinstance(layout.parents[function], ast.ClassDef):
            continue
        uses = [node for node in layout.loads.get(function.name, []) if not layout.is_inside(node, function)]
        if not uses or len(uses) != len(layout.loads[function.name]):
            continue
        if edit := _inlining(function, uses, layout) or _generator(function, uses, layout):
            yield edit


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
    """Return what a statement yields that does nothing else."""
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
    for function in statements_in(program.tree):
        if not isinstance(function, ast.FunctionDef) or isinstance(layout.parents[function], ast.ClassDef):
            continue
        body = [statement for statement in function.body if not is_docstring(statement)]
        uses = [node for node in layout.loads.get(function.name, []) if not layout.is_inside(node, function)]
        if len(body) != 1 or len(uses) != 1 or len(uses) != len(layout.loads[function.name]):
            continue
        match body[0]:
            case ast.Return(value=ast.expr() as value) | ast.Expr(value=value) if not _yields(value):
                made: ast.expr = ast.Lambda(args=_unhinted(function.args), body=value)
                for decorator in reversed(function.decorator_list):
                    made = ast.Call(func=decorator, args=[made], keywords=[])
                yield Edit(key=f"lambda {function.name}", replaced={function: [], uses[0]: [made]})


def _unhinted(parameters: ast.arguments) -> ast.arguments:
    """Return a function's parameters without hints: a lambda has none."""

    def plain(parameter: ast.arg | None) -> ast.arg | None:
        return parameter and ast.arg(arg=parameter.arg)

    fields = dict(ast.iter_fields(parameters))
    for name in ("posonlyargs", "args", "kwonlyargs"):
        fields[name] = [plain(parameter) for parameter in fields[name]]
    for name in ("vararg", "kwarg"):
        fields[name] = plain(fields[name])
    return ast.arguments(**fields)


def drop_parameters(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that leave out a parameter that its function does not read, and its arguments."""
    layout = layout_of(program.tree)
    for function in statements_in(program.tree):
        if not isinstance(function, ast.FunctionDef) or function.args.posonlyargs or function.args.kwonlyargs:
            continue
        owner = layout.parents[function]
        is_made = isinstance(owner, ast.ClassDef) and function.name == "__init__"
        name = owner.name if is_made and isinstance(owner, ast.ClassDef) else function.name
        calls = [layout.parents[use] for use in layout.loads.get(name, [])]
        if (isinstance(owner, ast.ClassDef) and not is_made) or not calls:
            continue
        own = loads_in(*function.body)
        for place, parameter in enumerate(function.args.args[is_made:]):
            if own[parameter.arg] or not all(isinstance(call, ast.Call) for call in calls):
                continue
            replaced = _without(function, place + is_made)
            for call in calls:
                assert isinstance(call, ast.Call)
                gone = [*call.args[place : place + 1], *(word for word in call.keywords if word.arg == parameter.arg)]
                replaced |= {each: [] for each in gone}
            yield Edit(key=f"parameter {name} {parameter.arg}", replaced=replaced)


def _without(function: ast.FunctionDef, place: int) -> dict[ast.AST, list[ast.AST]]:
    """Return the edit of a parameter and its default."""
    parameters = function.args
    first = len(parameters.args) - len(parameters.defaults)
    gone = [parameters.args[place], *([parameters.defaults[place - first]] if place >= first else [])]
    return {each: [] for each in gone}
