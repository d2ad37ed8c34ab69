"""Expressions without a part of them: arguments, calls around a value, elements, operands, branches."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.names import dotted
from whichtorch.matrix.source.syntax import called_name, in_head, is_constant, statements_in, words
from whichtorch.matrix.triage.minimise.tree_edit import Edit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

_KEPT = {"strict"}  # of torch.export: releases differ in what they do without it
_SMALL = 2  # a size that most operations accept, and unlike 1 does not broadcast


def drop_keywords(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of each keyword of a call."""
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Call):
            for word in (each for each in node.keywords if each.arg not in _KEPT):
                yield Edit(key=f"keyword {words(node)} {word.arg}", replaced={word: []})


def keep_likeliest_part(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield edits that put a part of an expression in place of the whole, the outermost first; not where it fails."""
    yield from _peeled(program, lambda statement: not state.fails_in(statement))


def keep_any_part(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield what `keep_likeliest_part` does for all statements, and each other part of an expression."""
    yield from _peeled(program, lambda _: True)
    modules = _imported(program.tree)
    for node in _expressions(program.tree):
        for part in _parts(node, modules)[1:]:
            yield Edit(key=f"peel {words(node)} -> {words(part)}", replaced={node: [part]})


def _peeled(program: Program, is_meant: Callable[[ast.stmt], bool]) -> Iterator[Edit]:
    layout, modules = layout_of(program.tree), _imported(program.tree)
    for statement in statements_in(program.tree):
        if not is_meant(statement):
            continue
        for node in in_head(statement):
            if isinstance(node, ast.expr) and _is_read(node, layout) and (parts := _parts(node, modules)):
                yield Edit(key=f"peel {words(node)} -> {words(parts[0])}", replaced={node: [parts[0]]})


def _expressions(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that have a value."""
    layout = layout_of(tree)
    return (node for node in ast.walk(tree) if isinstance(node, ast.expr) and _is_read(node, layout))


def _is_read(node: ast.expr, layout: Layout) -> bool:
    """Return whether an expression has a value, and is no target, decorator or base."""
    parent = layout.parents.get(node)
    is_target = isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del))
    return not is_target and not isinstance(parent, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))


def _parts(node: ast.expr, modules: set[str]) -> list[ast.expr]:
    """Return what may stand in place of an expression, the likeliest first."""
    match node:
        case ast.Call(func=function, args=args):
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call) and not args:
                return [] if called_name(function.value) == "super" else [function.value]
            values = [each.value if isinstance(each, ast.Starred) else each for each in args]
            if called_name(node)[:1].isupper():  # it makes an object: a size is none
                values = [value for value in values if isinstance(value, (ast.Call, ast.List))]
            receiver = (
                [function.value]
                if isinstance(function, ast.Attribute) and dotted(function).partition(".")[0] not in modules
                else []
            )
            return [*receiver, *(value for value in values if not is_constant(value))]
        case ast.BinOp(left=left, right=right):
            return sorted([left, right], key=is_constant)
        case ast.BoolOp(values=values):
            return values
        case ast.UnaryOp(operand=operand) if not isinstance(operand, ast.Constant):
            return [operand]
        case ast.IfExp(body=body, orelse=orelse):
            return [body, orelse]
        case ast.Subscript(value=value):
            return [value]
        case ast.Compare(left=left, comparators=[right]):
            return [left, right]
        case ast.JoinedStr():
            return [ast.Constant(value="")]
        case ast.Await(value=value) | ast.NamedExpr(value=value):
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
    variables = {
        target.id
        for statement in statements_in(program.tree)
        if isinstance(statement, (ast.Assign, ast.AugAssign))
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name)
    } | {node.arg for node in ast.walk(program.tree) if isinstance(node, ast.arg) and node.arg != "self"}
    for statement in statements_in(program.tree):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not isinstance(value, ast.Name):
                pass
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Name):
                name = ""
            case _:
                continue
        called = {id(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
        inner = [
            node
            for node in ast.walk(value)
            if isinstance(node, ast.Name) and node.id in variables and node.id != name and id(node) not in called
        ]
        if inner and not state.fails_in(statement) and layout.statement(inner[0]) is statement:
            yield Edit(key=f"plain {words(statement)}", replaced={value: [inner[0]]})
