"""What is looked up by a name -> what it is: short methods, properties, registered classes, `**` of a dict."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.names import dotted, stores_in
from whichtorch.matrix.source.syntax import Definition, is_docstring, is_simple, statements_in, words
from whichtorch.matrix.triage.minimise.inlining import arguments_at, given_values
from whichtorch.matrix.triage.minimise.tree_edit import Edit, Program, copied, load

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.reduction import ReductionState


def inline_methods(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put the expression which a method or property returns where it is called."""
    layout = layout_of(program.tree)
    uses: dict[str, list[ast.Attribute]] = {}
    for node in ast.walk(program.tree):
        if isinstance(node, ast.Attribute):
            uses.setdefault(node.attr, []).append(node)
    for method in statements_in(program.tree):
        if isinstance(method, ast.FunctionDef) and isinstance(layout.parents[method], ast.ClassDef):
            is_sure = layout.stores[method.name] == 1 and not method.name.startswith("__") and method.name in uses
            if is_sure and (edit := _method_inlined(method, uses[method.name], layout)):
                yield edit


def _method_inlined(method: ast.FunctionDef, uses: list[ast.Attribute], layout: Layout) -> Edit | None:
    """Return the edit that puts a method of one expression where it is used; None where it has more to it."""
    body = [statement for statement in method.body if not is_docstring(statement)]
    is_property = [dotted(each).rpartition(".")[2] for each in method.decorator_list] == ["property"]
    match body:
        case [ast.Return(value=ast.expr() as value)] if method.args.args and (is_property or not method.decorator_list):
            pass
        case _:
            return None
    replaced: dict[ast.AST, list[ast.AST]] = {method: []}
    for use in uses:
        call = layout.parents[use]
        is_called = isinstance(call, ast.Call) and call.func is use
        if not is_simple(use.value) or layout.is_inside(use, method) or (not is_property and not is_called):
            return None
        given = given_values(method.args, call, 1) if isinstance(call, ast.Call) and not is_property else {}
        if given is None or not all(map(is_simple, given.values())) or stores_in(value):
            return None
        given[method.args.args[0].arg] = use.value
        inner: dict[ast.AST, list[ast.AST]] = {
            node: [given[node.id]] for node in ast.walk(value) if isinstance(node, ast.Name) and node.id in given
        }
        replaced[use if is_property else call] = [*copied([value], inner)]
    return Edit(key=f"inline .{method.name}", replaced=replaced)


def inline_registered(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that name a class or function itself where it is looked up in a registry that a decorator fills."""
    layout = layout_of(program.tree)
    made = [each for each in program.tree.body if isinstance(each, ast.Assign)]
    registries = {*stores_in(*(each for each in made if isinstance(each.value, (ast.Dict, ast.Call))))}
    makers = {each.name for each in statements_in(program.tree) if isinstance(each, ast.FunctionDef)}
    for node in statements_in(program.tree):
        if not isinstance(node, Definition):
            continue
        for decorator in node.decorator_list:
            function = decorator.func if isinstance(decorator, ast.Call) else decorator
            if dotted(function).partition(".")[0] not in makers | registries:
                continue
            for use in ast.walk(program.tree):
                if looked_up := _registry(use, registries, layout):
                    key = f"registered {node.name} {words(looked_up)}"
                    yield Edit(key=key, replaced={looked_up: [load(node.name)], decorator: []})


def _registry(node: ast.AST, registries: set[str], layout: Layout) -> ast.expr | None:
    """Return a node that looks something up in a registry: `R[name]`, `R.get(name)`."""
    match node:
        case ast.Subscript(value=ast.Name(id=name), ctx=ast.Load()) if name in registries:
            return node
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="get")) if name in registries:
            return None if isinstance(layout.parents[node], ast.Expr) else node
        case _:
            return None


def inline_unpacking(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that write the entries of a dict as keywords, in place of `**{…}`; and `*[…]` as arguments."""
    for node in ast.walk(program.tree):
        if not isinstance(node, ast.Call):
            continue
        for word in node.keywords:
            if word.arg is not None or not isinstance(word.value, ast.Dict):
                continue
            names = [key.value for key in word.value.keys if isinstance(key, ast.Constant)]
            if len(names) == len(word.value.keys) and all(isinstance(name, str) for name in names):
                entries = zip(names, word.value.values, strict=True)
                plain = [ast.keyword(arg=str(name), value=value) for name, value in entries]
                yield Edit(key=f"spread {words(word.value)}", replaced={word: [*plain]})
        for argument in node.args:
            if isinstance(argument, ast.Starred) and isinstance(argument.value, (ast.List, ast.Tuple)):
                yield Edit(key=f"spread {words(argument)}", replaced={argument: [*argument.value.elts]})


def drop_fields(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that leave out a field of a dataclass that nothing reads, and its arguments."""
    layout = layout_of(program.tree)
    read = {node.attr for node in ast.walk(program.tree) if isinstance(node, ast.Attribute)}
    for node in statements_in(program.tree):
        if not isinstance(node, ast.ClassDef):
            continue
        listed = [each for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)]
        for place, each in enumerate(listed):
            name = words(each.target)
            given = arguments_at(layout, node.name, place, name)
            if given is not None and name not in read:
                yield Edit(key=f"field {node.name} {name}", replaced={gone: [] for gone in (each, *given)})
