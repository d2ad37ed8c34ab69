"""Expressions without a part of them: arguments, calls around a value, elements, operands, branches."""

from __future__ import annotations

import ast
from operator import itemgetter
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import layout_of
from whichtorch.matrix.source.names import bound, dotted
from whichtorch.matrix.source.syntax import Definition, called_name, in_head, is_constant, statements_in, words
from whichtorch.matrix.triage.minimise.tree_edit import Edit, Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.reduction import ReductionState

_KEPT = {"strict"}  # of torch.export: releases differ in what they do without it
_SMALL = 2  # a size that most operations accept, and unlike 1 does not broadcast


def drop_keywords(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of each keyword of a call."""
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Call):
            for word in (each for each in node.keywords if each.arg not in _KEPT):
                yield Edit(key=f"keyword {words(node)} {word.arg}", replaced={word: []})


def keep_any_part(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put a part of an expression in place of the whole: first the likeliest part of each."""
    parents, modules = layout_of(program.tree).parents, _imported(program.tree)
    found = [
        (place, node, part)
        for statement in statements_in(program.tree)
        for node in in_head(statement)
        if isinstance(node, ast.expr) and _is_read(node, parents[node])
        for place, part in enumerate(_parts(node, modules))
    ]
    for _place, node, part in sorted(found, key=itemgetter(0)):
        yield Edit(key=f"peel {words(node)} -> {words(part)}", replaced={node: [part]})


def _is_read(node: ast.expr, parent: ast.AST) -> bool:
    """Return whether an expression has a value, and is no target, decorator or base."""
    is_target = isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
    return not is_target and not isinstance(parent, Definition)


def _parts(node: ast.expr, modules: set[str]) -> list[ast.expr]:
    """Return what may stand in place of an expression, the likeliest first."""
    match node:
        case ast.Call(func=function, args=args):
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call) and not args:
                return [] if called_name(function.value) == "super" else [function.value]
            values = [each.value if isinstance(each, ast.Starred) else each for each in args]
            if called_name(node)[:1].isupper():  # it makes an object: a size is none
                values = [value for value in values if isinstance(value, (ast.Call, ast.List))]
            values = [value for value in values if not is_constant(value)]
            if isinstance(function, ast.Attribute) and dotted(function).partition(".")[0] not in modules:
                return [function.value, *values]
            return values
        case ast.BinOp(left=left, right=right):
            return sorted([left, right], key=is_constant)
        case ast.BoolOp(values=values):
            return values
        case ast.UnaryOp(operand=operand) if not isinstance(operand, ast.Constant):
            return [operand]
        case ast.IfExp(body=left, orelse=right) | ast.Compare(left=left, comparators=[right]):
            return [left, right]
        case ast.JoinedStr():
            return [ast.Constant(value="")]
        case ast.Subscript(value=value) | ast.Await(value=value) | ast.NamedExpr(value=value):
            return [value]
        case ast.List(elts=[ast.expr() as element]) | ast.Tuple(elts=[ast.expr() as element]):
            return [] if isinstance(element, ast.Starred) else [element]
        case _:
            return []


def _imported(tree: ast.AST) -> set[str]:
    """Return the names that imports bind: no values, as a rule."""
    aliases = (node for node in ast.walk(tree) if isinstance(node, ast.alias))
    return {alias.asname or alias.name.partition(".")[0] for alias in aliases}


def drop_elements(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of elements and arguments, the last first."""
    for node in ast.walk(program.tree):
        match node:
            case ast.Call(args=args) | ast.List(elts=args) | ast.Tuple(elts=args) | ast.Set(elts=args):
                for place, element in reversed(list(enumerate(args))):
                    if not isinstance(getattr(node, "ctx", None), ast.Store):
                        yield Edit(key=f"element {place} {words(node)}", replaced={element: []})
            case ast.Dict(keys=keys, values=values):
                for place in reversed(range(len(keys))):
                    fewer = ast.Dict(keys=keys[:place] + keys[place + 1 :], values=values[:place] + values[place + 1 :])
                    yield Edit(key=f"entry {place} {words(node)}", replaced={node: [fewer]})


def shrink_numbers(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that make a number small wherever it stands: sizes that belong together stay alike."""
    found: dict[int, list[ast.AST]] = {}
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value > _SMALL:
            found.setdefault(node.value, []).append(node)
    for number, nodes in sorted(found.items(), reverse=True):
        yield Edit(key=f"number {number}", replaced={node: [ast.Constant(value=_SMALL)] for node in nodes})


def keep_one_name(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield edits that make a variable another name for one that its value is made of."""
    layout = layout_of(program.tree)
    arguments = {node.arg for node in ast.walk(program.tree) if isinstance(node, ast.arg)}
    variables = {*layout.assigned, *arguments} - {"self"}
    for statement in statements_in(program.tree):
        match statement:
            case ast.Assign(targets=[ast.Name()], value=value) | ast.Return(value=ast.expr() as value) if not (
                isinstance(value, ast.Name) or state.fails_in(statement)
            ):
                others = variables - bound([statement])
                called = [node.func for node in ast.walk(value) if isinstance(node, ast.Call)]
                names = (node for node in ast.walk(value) if isinstance(node, ast.Name) and node.id in others)
                inner = next((node for node in names if node not in called), None)
                if inner is not None and layout.statement(inner) is statement:
                    yield Edit(key=f"plain {words(statement)}", replaced={value: [inner]})
