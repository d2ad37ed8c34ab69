"""Expressions without a part of them, and values in place of the names that stand for them."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from operator import itemgetter

from whichtorch.source.names import Layout, dotted, imported, layout_of, loads_in, stores_in
from whichtorch.source.syntax import (
    COMPREHENSIONS,
    Definition,
    blocks_in,
    blocks_of,
    called_name,
    in_head,
    is_constant,
    statements_in,
    words,
)
from whichtorch.triage.minimise.tree_edit import Edit, Program, ReductionState, assignment

_KEPT = {"strict"}  # of torch.export: releases differ in what they do without it
_WIDEST = 100  # characters of the longest line that is made of several
_LATER = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, *COMPREHENSIONS)


def drop_keywords(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of each keyword of a call."""
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Call):
            for word in (each for each in node.keywords if each.arg not in _KEPT):
                yield Edit(key=f"keyword {words(node)} {word.arg}", replaced={word: []})


def keep_any_part(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put a part of an expression in place of the whole: first the likeliest part of each."""
    parents, modules = layout_of(program.tree).parents, imported(list(ast.walk(program.tree)), "")
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
    return not isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)) and not isinstance(parent, Definition)


def _parts(node: ast.expr, modules: Collection[str]) -> list[ast.expr]:
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


def inline_variables(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put a value where its variable is read, in the same block, and nowhere else."""
    layout = layout_of(program.tree)
    for block in blocks_of(program.tree):
        for place, statement in enumerate(block):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    use = _only_use(name, block[place + 1 :], layout, statement)
                    if use is not None and _fits(use, value, layout):
                        yield Edit(key=f"once {name} = {words(value)}", replaced={statement: [], use: [value]})
                case ast.Assign(targets=[ast.Tuple(elts=left)], value=ast.Tuple(elts=right)) if len(left) == len(right):
                    apart = [assignment(name, value, statement) for name, value in zip(left, right, strict=True)]
                    yield Edit(key=f"apart {words(statement)}", replaced={statement: apart})


def _only_use(name: str, below: list[ast.stmt], layout: Layout, binder: ast.stmt) -> ast.Name | None:
    """Return where a variable is read, if only once before it is bound again."""
    found: ast.Name | None = None
    for statement in below:
        uses = [node for node in ast.walk(statement) if isinstance(node, ast.Name) and node.id == name]
        loads = [node for node in uses if isinstance(node.ctx, ast.Load)]
        is_bound = len(uses) > len(loads)
        if isinstance(statement, ast.AugAssign) and is_bound:
            return None
        if loads:
            if found is not None or len(loads) > 1 or not _is_plain(loads[0], statement, layout):
                return None
            found = loads[0]
        if is_bound and not list(blocks_in(statement)):
            break
        if is_bound:
            return None
    else:
        is_nested = not isinstance(layout.parents[binder], (ast.Module, ast.FunctionDef))
        if is_nested and loads_in(layout.scope(binder))[name] > (found is not None):
            return None
    inner = [node for node in layout.loads.get(name, []) if layout.scope(node) is not layout.scope(binder)]
    return None if any(not stores_in(layout.scope(node))[name] for node in inner) else found


def _is_plain(use: ast.Name, statement: ast.stmt, layout: Layout) -> bool:
    """Return whether what is read there is evaluated once, with its statement."""
    for node in layout.outward(use):
        if isinstance(node, _LATER):
            return False
        if node is statement:
            break
    if isinstance(statement, ast.While):
        return False
    return use in in_head(statement)


def _fits(use: ast.Name, value: ast.expr, layout: Layout) -> bool:
    """Return whether the line with the value in it is short enough."""
    statement = layout.statement(use)
    if statement is None:
        return False
    whole = max((len(line) for line in ast.unparse(statement).splitlines()), default=0)
    return whole + len(words(value)) - len(use.id) <= _WIDEST
