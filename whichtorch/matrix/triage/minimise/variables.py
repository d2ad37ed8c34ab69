"""Values where names are read: variables read once, constants, fields of a config; and packages imported once."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.names import loads_in, stores_in
from whichtorch.matrix.source.syntax import (
    COMPREHENSIONS,
    blocks_in,
    blocks_of,
    in_head,
    is_constant,
    is_docstring,
    parse_expression,
    statements_in,
    words,
)
from whichtorch.matrix.triage.minimise.tree_edit import Edit, Program, assignment

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.reduction import ReductionState

_WIDEST = 100  # characters of the longest line that is made of several
_LATER = (ast.Lambda, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, *COMPREHENSIONS)


def inline_variables(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that put a value where its variable is read, in the same block, and nowhere else."""
    layout = layout_of(program.tree)
    for block in blocks_of(program.tree):
        for place, statement in enumerate(block):
            match statement:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    use = _only_use(name, block[place + 1 :], layout, statement)
                    if use is not None and _fits(use, value, layout):
                        key = f"once {name} = {words(value)}"
                        yield Edit(key=key, replaced={statement: [], use: [value]})
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if len(names) == len(
                    values
                ):
                    apart = [assignment(each, value, statement) for each, value in zip(names, values, strict=True)]
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


def merge_imports(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that read names of a package through the package itself, in place of a second import."""
    layout = layout_of(program.tree)
    for statement in program.tree.body:
        match statement:
            case ast.Import(names=[ast.alias(name=path, asname=str(name))]) if "." in path:
                bindings = [(name, path)]
            case ast.ImportFrom(module=str(module), names=names, level=0) if module != "__future__":
                bindings = [(each.asname or each.name, f"{module}.{each.name}") for each in names if each.name != "*"]
            case ast.Import(names=[ast.alias(name=path, asname=None)]) if "." in path:
                bindings = []
            case _:
                continue
        root = (getattr(statement, "module", None) or statement.names[0].name).partition(".")[0]
        if not all(layout.stores[name] == 1 for name, _ in bindings) or layout.stores[root] > 1 + (not bindings):
            continue
        uses: dict[ast.AST, list[ast.AST]] = {
            use: [parse_expression(path)] for name, path in bindings for use in layout.loads.get(name, [])
        }
        has_root = any(
            isinstance(each, ast.Import)
            and each is not statement
            and any((a.asname or a.name) == root for a in each.names)
            for each in program.tree.body
        )
        plain = [] if has_root else [ast.Import(names=[ast.alias(name=root)])]
        yield Edit(key=f"merge {words(statement)}", replaced={statement: [*plain], **uses})
