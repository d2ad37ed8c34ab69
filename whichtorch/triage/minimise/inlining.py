"""What is called by a name stands there itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.source.names import Layout, bound, defaults, dotted, layout_of, loads_in, stores_in
from whichtorch.source.syntax import COMPREHENSIONS, Definition, blocks_in, is_docstring, is_simple, statements_in
from whichtorch.triage.minimise.tree_edit import Edit, Program, ReductionState, assignment, copied

if TYPE_CHECKING:
    from whichtorch.source.syntax import Function

_ASSIGNMENT = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_ONCE = (*_ASSIGNMENT, ast.Expr, ast.Return, ast.Assert, ast.If, ast.For, ast.With, ast.Raise)
MOST_PLACES = 4  # that a function of one line is put into


@dataclass(frozen=True, slots=True, kw_only=True)
class Inlined:
    """What stands above the call, and in its place."""

    above: list[ast.stmt]
    value: ast.expr | None  # None: the function returns nothing


def inlined(function: Function, call: ast.Call, layout: Layout) -> Inlined | None:
    """Return a call's function at the place of the call; None where that is not certain to be the same."""
    given = given_values(function.args, call)
    body = [statement for statement in function.body if not is_docstring(statement)]
    returns = [each for each in _own_statements(body) if isinstance(each, ast.Return)]
    if given is None or len(returns) > 1 or (returns and returns[0] is not body[-1]):
        return None
    statement, scope = layout.statement(call), layout.scope(call)
    if statement is None or isinstance(scope, (ast.ClassDef, ast.Lambda)):
        return None
    values, above = _split(given, body)
    locals_ = bound(body) | {name for name in given if name not in values}
    shared = {
        name for each in _own_statements(body) if isinstance(each, (ast.Global, ast.Nonlocal)) for name in each.names
    }
    taken = stores_in(layout.tree) - stores_in(function)
    names: dict[str, str] = {}
    for name in sorted(filter(taken.get, locals_ - shared)):
        names[name] = layout.fresh(name, names.values())
    placed = [assignment(names.get(name, name), value, statement) for name, value in above]
    moved = _renamed(body, names, values)
    if isinstance(scope, ast.Module):
        moved = [each for each in moved if not isinstance(each, (ast.Global, ast.Nonlocal))]
    placed = [each for each in placed if ast.unparse(each.targets[0]) != ast.unparse(each.value)]
    last = moved.pop() if returns else None
    assert last is None or isinstance(last, ast.Return)
    return Inlined(above=[*placed, *moved], value=last.value if last else None)


def given_values(parameters: ast.arguments, call: ast.Call) -> dict[str, ast.expr] | None:
    """Return each parameter's argument or default; None where the call does not say."""
    if any(isinstance(value, ast.Starred) for value in call.args) or any(word.arg is None for word in call.keywords):
        return None
    listed = [each.arg for each in (*parameters.posonlyargs, *parameters.args)]
    words = [each.arg for each in parameters.kwonlyargs]
    if len(call.args) > len(listed):
        return None
    passed = dict(zip(listed, call.args, strict=False)) | {word.arg: word.value for word in call.keywords if word.arg}
    found = defaults(parameters) | passed
    return found if found.keys() == {*listed, *words} else None


def _own_statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body, without those of functions in it."""
    for statement in body:
        yield statement
        if not isinstance(statement, Definition):
            for block in blocks_in(statement):
                yield from _own_statements(block)


def _split(
    given: Mapping[str, ast.expr], body: Sequence[ast.stmt]
) -> tuple[dict[str, ast.expr], list[tuple[str, ast.expr]]]:
    """Return the values that may stand in place of their parameters, and those that need an assignment."""
    stored, loads = stores_in(*body), loads_in(*body)
    values, above = {}, []
    for name, value in given.items():
        is_changed = stored[name] or any(stored[each] for each in loads_in(value))
        if not is_changed and (is_simple(value) or loads[name] == 1):
            values[name] = value
        elif loads[name] or not is_simple(value):
            above.append((name, value))
    return values, above


def _renamed(body: list[ast.stmt], names: Mapping[str, str], values: Mapping[str, ast.expr]) -> list[ast.stmt]:
    """Return copies of statements with other names, and values in place of some that are read."""
    found = copied(body, {})
    for statement in found:
        rename(statement, names)
    replaced: dict[ast.AST, list[ast.AST]] = {
        node: [values[node.id]]
        for statement in found
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in values
    }
    return copied(found, replaced)


def rename(tree: ast.AST, names: Mapping[str, str]) -> None:
    """Give other names to what a tree binds and reads, in place."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) if name in names:
                node.id = names[name]
            case ast.arg(arg=name) if name in names:
                node.arg = names[name]
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) if (
                name in names
            ):
                node.name = names[name]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) if name in names:
                node.name = names[name]
            case ast.alias(name=name, asname=asname) if (asname or name) in names:
                node.asname = names[asname or name]


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
