"""Variables that are read once: the value stands where they are read; and packages that are imported twice."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import Layout, layout_of
from whichtorch.matrix.source.names import loads_in, stores_in
from whichtorch.matrix.source.syntax import COMPREHENSIONS, blocks_in, blocks_of, head_nodes, words
from whichtorch.matrix.triage.minimise.tree_edit import Edit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

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
                    pairs = zip(names, values, strict=True)
                    apart = [ast.Assign(targets=[each], value=value) for each, value in pairs]
                    yield Edit(
                        key=f"apart {words(statement)}",
                        replaced={statement: [ast.copy_location(each, statement) for each in apart]},
                    )


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
        scope = layout.scope(binder)
        if not isinstance(layout.parents[binder], (ast.Module, ast.FunctionDef)) and _others(name, scope, found):
            return None
    inner = [node for node in layout.loads.get(name, []) if layout.scope(node) is not layout.scope(binder)]
    return None if any(not stores_in(layout.scope(node))[name] for node in inner) else found


def _others(name: str, scope: ast.AST, found: ast.Name | None) -> bool:
    return loads_in(scope)[name] > (found is not None)


def _is_plain(use: ast.Name, statement: ast.stmt, layout: Layout) -> bool:
    """Return whether what is read there is evaluated once, with its statement."""
    for node in layout.outward(use):
        if isinstance(node, _LATER):
            return False
        if node is statement:
            break
    if isinstance(statement, ast.While):
        return False
    return not list(blocks_in(statement)) or any(
        use is each for part in head_nodes(statement) for each in ast.walk(part)
    )


def _fits(use: ast.Name, value: ast.expr, layout: Layout) -> bool:
    """Return whether the line with the value in it is short enough."""
    statement = layout.statement(use)
    if statement is None:
        return False
    whole = max((len(line) for line in ast.unparse(statement).splitlines()), default=0)
    return whole + len(words(value)) - len(use.id) <= _WIDEST


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
            use: [_attribute(path)] for name, path in bindings for use in layout.loads.get(name, [])
        }
        has_root = any(
            isinstance(each, ast.Import)
            and each is not statement
            and any((a.asname or a.name) == root for a in each.names)
            for each in program.tree.body
        )
        plain = [] if has_root else [ast.Import(names=[ast.alias(name=root)])]
        yield Edit(key=f"merge {words(statement)}", replaced={statement: [*plain], **uses})


def _attribute(path: str) -> ast.expr:
    first, *rest = path.split(".")
    found: ast.expr = ast.Name(id=first, ctx=ast.Load())
    for name in rest:
        found = ast.Attribute(value=found, attr=name, ctx=ast.Load())
    return found
