"""Tests that a script defines for pytest or unittest, where running the script runs none of them."""

from __future__ import annotations

import ast

from whichtorch.matrix.source.syntax import called_name, parse_module

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Pass)


def uncalled_tests(source: bytes) -> tuple[str, ...]:
    """Return the tests that a script defines, if it neither calls one nor does anything else.

    Anything else is a block, a loop, or a call of its own functions.
    """
    try:
        tree = parse_module(source)
    except (SyntaxError, ValueError, RecursionError):
        return ()
    nodes = list(ast.walk(tree))
    read = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    libraries = {alias.asname or alias.name.partition(".")[0] for node in imports for alias in node.names}
    tests = tuple(name for node in tree.body if (name := _test_in(node)))
    return () if read.intersection(tests) or any(_acts(node, libraries) for node in tree.body) else tests


def _test_in(node: ast.stmt) -> str:
    """Return the name of a function that is a test, or of a class with one; "" for anything else."""
    inner = node.body if isinstance(node, ast.ClassDef) else [node]
    is_test = any(isinstance(each, _FUNCTIONS) and each.name.startswith("test") for each in inner)
    return str(getattr(node, "name", "")) if is_test else ""


def _acts(node: ast.stmt, libraries: set[str]) -> bool:
    """Return whether a statement does more than define, import, or configure a library: torch.manual_seed(0)."""
    if isinstance(node, _DEFINITIONS):
        return False
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    # unittest.main() and run_tests() find the tests by themselves
    is_setting = all(
        ast.unparse(call.func).partition(".")[0] in libraries and not called_name(call).startswith(("main", "run"))
        for call in calls
    )
    return not (isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign) and is_setting)
