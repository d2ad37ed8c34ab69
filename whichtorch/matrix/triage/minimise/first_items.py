"""Collections that are only there for their first item -> that item."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.syntax import statements_in, words
from whichtorch.matrix.triage.minimise.tree_edit import Edit, copied
from whichtorch.matrix.triage.minimise.unwrapping import first_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

_COMPREHENSIONS = (ast.ListComp, ast.GeneratorExp, ast.SetComp)


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
    """Return the first element of a list or of a call with one: the whole of a list that is unpacked there."""
    match node:
        case ast.List(elts=[first, *_]) | ast.Tuple(elts=[first, *_]):
            return _item(first.value) if isinstance(first, ast.Starred) else first
        case ast.Call(args=[ast.Starred(value=inner), *_]) | ast.Call(args=[ast.List() as inner], keywords=[]):
            return _item(inner)
        case _:
            return None
