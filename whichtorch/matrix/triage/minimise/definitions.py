"""What of a script its pieces need when they stand alone: what they name, and what is registered for all to use."""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING

from whichtorch.matrix.source.names import bound, loads_in
from whichtorch.matrix.source.syntax import is_docstring

if TYPE_CHECKING:
    from collections.abc import Collection

DEFINITIONS = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def needed_by(piece: ast.Module, tree: ast.Module, always: Collection[ast.stmt] = ()) -> str:
    """Return a script's statements that bind what a piece reads, `import torch` among them, and others `always`."""
    needed = {*loads_in(piece), "torch"}
    kept: list[ast.stmt] = []
    for statement in reversed(tree.body):
        is_binding = isinstance(statement, (*DEFINITIONS, ast.Assign, ast.AnnAssign)) and bound([statement]) & needed
        if is_binding or statement in always:
            kept.append(statement)
            needed |= loads_in(statement).keys()
    texts = [ast.unparse(statement) for statement in reversed(kept)]
    return "".join(f"{text}\n" for text in (texts if "import torch" in texts else ["import torch", *texts]))


def registering(tree: ast.Module, line: int) -> list[ast.stmt]:
    """Return the statements before a line that may matter to what does not name them: operators, settings of torch."""
    before = itertools.takewhile(lambda statement: (statement.end_lineno or 0) < line, tree.body)
    return [statement for statement in before if _acts(statement)]


def _acts(statement: ast.stmt) -> bool:
    match statement:
        case ast.FunctionDef(decorator_list=decorators) if decorators:
            return True
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return True
        case ast.Expr():
            return not is_docstring(statement)
        case _:
            return False
