"""Statements left out: those that did not run, those that only people read, and any other."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from whichtorch.matrix.source.names import has_self, parameters
from whichtorch.matrix.source.syntax import Function, blocks_in, blocks_of, is_docstring, words
from whichtorch.matrix.triage.minimise.cleaning import unused
from whichtorch.matrix.triage.minimise.tree_edit import Edit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.triage.minimise.edit_search import ReductionState
    from whichtorch.matrix.triage.minimise.tree_edit import Program

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
    for block in blocks_of(program.tree):
        for statement in block:
            yield from _chatter(statement)
    for node in ast.walk(program.tree):
        if isinstance(node, Function) and (hints := _hints(node)):
            yield Edit(key=f"hints {node.name}", replaced={hint: [] for hint in hints})
    yield from unused(program)


def _chatter(statement: ast.stmt) -> Iterator[Edit]:
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


def _hints(node: Function) -> list[ast.expr]:
    found = [parameter.annotation for parameter in parameters(node)] + [node.returns]
    return [hint for hint in found if hint is not None]


def drop_variable_hints(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield edits that leave out the hints of variables; those of a class may say which fields it has."""
    for outer in [program.tree, *(node for node in ast.walk(program.tree) if not isinstance(node, ast.ClassDef))]:
        for block in blocks_in(outer) if isinstance(outer, (ast.stmt, ast.Module)) else ():
            for statement in block:
                if isinstance(statement, ast.AnnAssign):
                    plain = [ast.Assign(targets=[statement.target], value=statement.value)] if statement.value else []
                    key = f"hint {words(statement)}"
                    yield Edit(key=key, replaced={statement: [ast.copy_location(new, statement) for new in plain]})


def drop_any_statement(program: Program, state: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of every statement that it did not fail in: outer ones first, the last one first."""
    level: list[tuple[ast.AST, list[ast.stmt]]] = [(program.tree, block) for block in blocks_in(program.tree)]
    while level:
        inner: list[tuple[ast.AST, list[ast.stmt]]] = []
        for owner, block in level:
            for statement in reversed(block):
                if not state.fails_in(statement) and not isinstance(statement, ast.Pass):
                    yield Edit(key=f"delete {_place(owner)} {words(statement)}", replaced={statement: []})
                inner += [(statement, each) for each in blocks_in(statement)]
        level = inner


def _place(owner: ast.AST) -> str:
    return getattr(owner, "name", "") or type(owner).__name__


def drop_decorators(program: Program, _: ReductionState) -> Iterator[Edit]:
    """Yield the deletion of decorators."""
    for node in ast.walk(program.tree):
        for decorator in getattr(node, "decorator_list", ()):
            yield Edit(key=f"decorator {words(decorator)}", replaced={decorator: []})
