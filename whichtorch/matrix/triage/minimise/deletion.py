"""Statements left out: those that did not run, those that only people read, any other, and then unused names."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from whichtorch.matrix.source.layout import layout_of
from whichtorch.matrix.source.names import has_self, loads_in, parameters
from whichtorch.matrix.source.syntax import (
    Function,
    blocks_in,
    is_constant,
    is_docstring,
    is_simple,
    statements_in,
    words,
)
from whichtorch.matrix.triage.minimise.tree_edit import Edit, Program, assignment

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState

MOST_ROUNDS = 8  # a deleted statement may have been the last one to use another
_UNTRACED = (ast.Global, ast.Nonlocal, ast.Pass, ast.Break, ast.Continue)  # they may run and leave no trace


def drop_unexecuted(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of statements, branches and bodies of which no line ran."""
    found = [edit for block in blocks_in(program.tree) for edit in _idle(block, state.executed)]
    yield from sorted(found, key=lambda edit: edit.key.startswith("method"))  # compilers run them unseen


def _idle(block: list[ast.stmt], executed: frozenset[int] | None) -> Iterator[Edit]:
    for statement in block:
        if executed is None or isinstance(statement, _UNTRACED) or is_docstring(statement):
            continue
        if not _has_run(statement, executed):
            yield Edit(key=f"idle {statement.lineno} {words(statement)[:80]}", replaced={statement: []})
        elif has_self(statement) and not any(_has_run(inner, executed) for inner in statement.body):
            yield Edit(key=f"method {statement.lineno} {statement.name}", replaced={statement: []})
        else:
            yield from (edit for inner in blocks_in(statement) for edit in _idle(inner, executed))


def _has_run(statement: ast.stmt, executed: frozenset[int]) -> bool:
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return not executed.isdisjoint(range(first, (statement.end_lineno or first) + 1))


def drop_output(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that leave out what hardly any run looks at: docstrings, hints, messages, and what nothing uses."""
    for statement in statements_in(program.tree):
        yield from _unread(statement)
    for node in ast.walk(program.tree):
        if isinstance(node, Function) and (hints := hints_of(node)):
            yield Edit(key=f"hints {node.name}", replaced={hint: [] for hint in hints})
    yield from unused(program)


def _unread(statement: ast.stmt) -> Iterator[Edit]:
    if is_docstring(statement) and not _is_ellipsis(statement):
        yield Edit(key=f"text {words(statement)}", replaced={statement: []})
    match statement:
        case ast.Assert(msg=ast.expr() as message):
            yield Edit(key=f"message {words(message)}", replaced={message: []})
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            yield Edit(key=f"print {words(statement)}", replaced={statement: []})
        case ast.ImportFrom(module="__future__"):
            yield Edit(key="future", replaced={statement: []})


def _is_ellipsis(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and getattr(statement.value, "value", None) is ...


def hints_of(node: Function) -> list[ast.expr]:
    """Return the hints of a function's parameters and of its result."""
    found = [parameter.annotation for parameter in parameters(node)] + [node.returns]
    return [hint for hint in found if hint is not None]


def drop_variable_hints(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that leave out the hints of variables; those of a class may say which fields it has."""
    parents = layout_of(program.tree).parents
    for statement in statements_in(program.tree):
        if isinstance(statement, ast.AnnAssign) and not isinstance(parents[statement], ast.ClassDef):
            plain = [assignment(statement.target, statement.value, statement)] if statement.value else []
            yield Edit(key=f"hint {words(statement)}", replaced={statement: plain})


def drop_any_statement(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of every statement that it did not fail in: outer ones first, the last one first."""
    waiting: list[tuple[ast.AST, list[ast.stmt]]] = [(program.tree, program.tree.body)]
    for owner, block in waiting:  # it grows by the blocks of the next level
        place = getattr(owner, "name", "") or type(owner).__name__
        for statement in reversed(block):
            if not state.fails_in(statement) and not isinstance(statement, ast.Pass):
                yield Edit(key=f"delete {place} {words(statement)}", replaced={statement: []})
            waiting += [(statement, each) for each in blocks_in(statement)]


def drop_decorators(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of decorators."""
    for node in ast.walk(program.tree):
        for decorator in getattr(node, "decorator_list", ()):
            yield Edit(key=f"decorator {words(decorator)}", replaced={decorator: []})


def cleaned(program: Program, *, before: Program) -> Program:
    """Return a program without what nothing uses any more; what was unused before already stays."""
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
    for statement in statements_in(program.tree):
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
