"""Settings -> the values that they have: constants with a name, fields of a config object, options with a default."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.syntax import is_constant, is_docstring, statements_in, words
from whichtorch.matrix.triage.minimise.tree_edit import Edit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

_FLAGS = {"store_true": False, "store_false": True}  # actions of argparse, and what they leave when not given


def inline_constants(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put the value of a name that is bound once, to a constant, where it is read."""
    layout = layout_of(program.tree)
    for statement in statements_in(program.tree):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if layout.stores[name] == 1 and is_constant(
                value
            ):
                uses = layout.loads.get(name, [])
                is_short = isinstance(value, (ast.Constant, ast.UnaryOp)) or len(uses) == 1
                if uses and is_short and not isinstance(layout.parents[statement], ast.ClassDef):
                    yield Edit(key=f"constant {name}", replaced={statement: [], **{use: [value] for use in uses}})


def inline_fields(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put the values of a config's fields where they are read: of a dataclass, a namespace, a dict."""
    layout = layout_of(program.tree)
    for statement in statements_in(program.tree):
        match statement:
            case ast.ClassDef(name=name):
                values = _class_fields(statement, layout)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(args=[], keywords=given)) if given:
                values = {word.arg: word.value for word in given if word.arg and is_constant(word.value)}
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict(keys=keys, values=items)):
                entries = zip(keys, items, strict=True)
                values = {
                    str(key.value): item for key, item in entries if isinstance(key, ast.Constant) and is_constant(item)
                }
            case _:
                continue
        if edit := _reading(program.tree, values, f"fields {name}"):
            yield edit


def _class_fields(node: ast.ClassDef, layout: Layout) -> dict[str, ast.expr]:
    """Return the values of the fields of a class's only object."""
    found: dict[str, ast.expr] = {}
    names = []
    for statement in node.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), value=value):
                names.append(name)
                found |= {name: _field_default(value)} if value is not None else {}
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                found[name] = value
            case _ if not is_docstring(statement):
                return {}
    uses = [layout.parents[use] for use in layout.loads.get(node.name, [])]
    calls = [use for use in uses if isinstance(use, ast.Call)]
    if len(calls) > 1:
        return {}
    for call in calls:
        found |= dict(zip(names, call.args, strict=False)) | {
            word.arg: word.value for word in call.keywords if word.arg
        }
    return {name: value for name, value in found.items() if is_constant(value)}


def _field_default(value: ast.expr) -> ast.expr:
    """Return the value of `field(default=…)` and of `field(default_factory=lambda: …)`, else the value itself."""
    match value:
        case ast.Call(func=ast.Name(id="field") | ast.Attribute(attr="field"), keywords=given):
            for word in given:
                if word.arg == "default_factory" and isinstance(word.value, ast.Lambda):
                    return word.value.body
                if word.arg == "default":
                    return word.value
    return value


def _reading(tree: ast.Module, values: dict[str, ast.expr], key: str) -> Edit | None:
    """Return the edit that puts values where attributes or entries with these names are read."""
    replaced: dict[ast.AST, list[ast.AST]] = {}
    for node in ast.walk(tree):
        match node:
            case (
                ast.Attribute(value=ast.Name() | ast.Attribute(value=ast.Name(id="self")) as owner, attr=name)
                | ast.Subscript(slice=ast.Constant(value=str(name)), value=owner)
            ) if name in values and isinstance(node.ctx, ast.Load) and words(owner) != "self":
                replaced[node] = [values[name]]
    return Edit(key=key, replaced=replaced) if replaced else None
