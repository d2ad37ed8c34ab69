"""A call of a function of the script -> the function's body, as it would stand at the place of the call."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from whichtorch.matrix.source.names import bound, loads_in, stores_in
from whichtorch.matrix.source.syntax import Definition, Function, blocks_in, is_docstring, is_simple
from whichtorch.matrix.triage.minimise.tree_edit import assignment, copied

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from whichtorch.matrix.source.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Inlined:
    """What stands above the call, and in its place."""

    above: list[ast.stmt]
    value: ast.expr | None  # None: the function returns nothing


def inlined(function: Function, call: ast.Call, layout: Layout, *, skip: int = 0) -> Inlined | None:
    """Return a call's function at the place of the call; None where that is not certain to be the same.

    `skip` parameters have no argument in the call: 1 for a method's self.
    """
    given = given_values(function.args, call, skip)
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


def given_values(parameters: ast.arguments, call: ast.Call, skip: int = 0) -> dict[str, ast.expr] | None:
    """Return each parameter's argument or default; None where the call does not say."""
    if any(isinstance(value, ast.Starred) for value in call.args) or any(word.arg is None for word in call.keywords):
        return None
    listed = [each.arg for each in (*parameters.posonlyargs, *parameters.args)]
    words = [each.arg for each in parameters.kwonlyargs]
    last = zip(listed[::-1], parameters.defaults[::-1], strict=False)
    defaults = [*last, *zip(words, parameters.kw_defaults, strict=True)]
    wanted = listed[skip:]
    if len(call.args) > len(wanted):
        return None
    passed = dict(zip(wanted, call.args, strict=False)) | {word.arg: word.value for word in call.keywords if word.arg}
    found = {name: value for name, value in defaults if value and name not in listed[:skip]} | passed
    return found if found.keys() == {*wanted, *words} else None


def arguments_at(layout: Layout, name: str, place: int, word: str) -> list[ast.AST] | None:
    """Return what all calls of a name give to a parameter; None where it is never called, or used otherwise, too."""
    outer = [layout.parents[use] for use in layout.loads.get(name, [])]
    calls = [each for each in outer if isinstance(each, ast.Call)]
    if not calls or len(calls) < len(outer):
        return None
    listed: list[ast.AST] = [argument for call in calls for argument in call.args[place : place + 1]]
    return listed + [keyword for call in calls for keyword in call.keywords if keyword.arg == word]


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
