"""What nothing uses any more goes with the edit that used it: imports, definitions, and values that do nothing."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from whichtorch.matrix.source.names import has_self, loads_in
from whichtorch.matrix.source.syntax import blocks_of, is_constant, is_simple
from whichtorch.matrix.triage.minimise.tree_edit import Edit, Program

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

MOST_ROUNDS = 8  # what went may have been the last to use something else


def cleaned(program: Program, *, before: Program) -> Program:
    """Return a program without what nothing uses any more; what was as unused before stays."""
    known = _unused_keys(before)
    for _ in range(MOST_ROUNDS):
        edits = [edit for edit in unused(program) if edit.key not in known]
        if not edits:
            break
        program = program.edited(edits)
    return program


@lru_cache(maxsize=4)
def _unused_keys(program: Program) -> frozenset[str]:
    return frozenset(edit.key for edit in unused(program))


def unused(program: Program) -> Iterator[Edit]:
    """Yield the deletion of each name that is bound and never read, where binding it does nothing else."""
    loads = loads_in(program.tree)
    shared = {
        name for node in ast.walk(program.tree) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names
    }
    for block in blocks_of(program.tree):
        for statement in block:
            yield from _unused_names(statement, loads, shared)


def _unused_names(statement: ast.stmt, loads: Counter[str], shared: set[str]) -> Iterator[Edit]:
    match statement:
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            for alias in aliases:
                name = alias.asname or alias.name.partition(".")[0]
                if name != "*" and not loads[name] and getattr(statement, "module", "") != "__future__":
                    yield Edit(key=f"unused import {name}", replaced={alias: []})
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            is_plain = not statement.decorator_list and not has_self(statement)
            if is_plain and not loads[name] - loads_in(statement)[name]:
                yield Edit(key=f"unused {name}", replaced={statement: []})
        case ast.Assign(targets=[ast.Name(id=name)], value=value) if name not in shared and not loads[name]:
            if is_constant(value) or is_simple(value) or isinstance(value, ast.Lambda):
                yield Edit(key=f"unused {name} =", replaced={statement: []})
