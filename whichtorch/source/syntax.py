"""What a statement or an expression is made of: its blocks, its head, constants; and which one a line belongs to."""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
Scope = Definition | ast.Lambda | ast.Module
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_BLOCKS = ("body", "orelse", "finalbody")
_PARTS = ("handlers", "cases")
_LARGEST = 2**22  # bytes of a source that are read
# Python 3.11 has one counter for the depth of syntax trees, which all threads share. If a second thread parses while
# the first one collects garbage, the first one fails with SystemError: "AST constructor recursion depth mismatch".
_parse_lock = threading.RLock()


def parse_module(source: str | bytes, filename: str = "<unknown>") -> ast.Module:
    """Parse a module as `ast.parse` does, one thread at a time."""
    with _parse_lock:
        return ast.parse(source, filename)


def parse_expression(source: str) -> ast.expr:
    """Parse an expression as `ast.parse` does, one thread at a time."""
    with _parse_lock:
        return ast.parse(source, mode="eval").body


@lru_cache(maxsize=64)
def parsed(path: str) -> ast.Module | None:
    """Return the module that a file holds, None where it cannot be read; a path may be redacted."""
    from whichtorch.base.redaction import restored  # here: a supervisor parses, too, and reads no stored path

    try:
        with restored(Path(path)).open("rb") as file:
            return parse_module(file.read(_LARGEST))
    except (OSError, RuntimeError, SyntaxError, ValueError):
        return None


def blocks_in(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the blocks of a statement or module itself, those of its handlers and cases, too."""
    if isinstance(node, (ast.Lambda, ast.IfExp)):
        return
    for name in _BLOCKS:
        if block := getattr(node, name, None):
            yield block
    for name in _PARTS:
        for part in getattr(node, name, ()):
            yield part.body


def blocks_of(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield all blocks, an outer one before those in it."""
    for block in blocks_in(node):
        yield block
        for statement in block:
            yield from blocks_of(statement)


def statements_in(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield all statements, those of the outer block first."""
    for block in blocks_of(node):
        yield from block


def head_nodes(statement: ast.stmt) -> list[ast.AST]:
    """Return what a statement consists of, without the blocks in it."""
    inner = {node for block in blocks_in(statement) for node in block}
    found: list[ast.AST] = []
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.ExceptHandler):
            found += [child.type] if child.type else []
        elif isinstance(child, ast.match_case):
            found += [child.pattern, *([child.guard] if child.guard else [])]
        elif child not in inner:
            found.append(child)
    return found


def in_head(statement: ast.stmt) -> Iterator[ast.AST]:
    """Yield all nodes of a statement, without the blocks in it."""
    for node in head_nodes(statement):
        yield from ast.walk(node)


def is_constant(node: ast.AST | None) -> bool:
    """Return whether an expression is made of constants alone."""
    match node:
        case ast.Constant():
            return True
        case ast.UnaryOp(operand=operand):
            return is_constant(operand)
        case ast.Tuple(elts=elements) | ast.List(elts=elements) | ast.Set(elts=elements):
            return all(map(is_constant, elements))
        case ast.Dict(keys=keys, values=values):
            return all(map(is_constant, keys)) and all(map(is_constant, values))
        case _:
            return False


def is_simple(node: ast.AST) -> bool:
    """Return whether an expression may stand wherever its value is wanted, as often as it is."""
    match node:
        case ast.Name():
            return True
        case ast.Attribute(value=value):
            return is_simple(value)
        case ast.UnaryOp(operand=ast.Constant()):
            return True
        case ast.Tuple(elts=elements):
            return all(map(is_constant, elements))
        case _:
            return isinstance(node, ast.Constant)


def texts_in(tree: ast.AST) -> Iterator[str]:
    """Yield the texts that stand in code."""
    return (each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and isinstance(each.value, str))


def called_name(call: ast.Call) -> str:
    """Return the last name of what is called, "" where it has none."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def is_docstring(statement: ast.AST) -> bool:
    """Return whether a statement is a string or another constant that nobody reads."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def words(node: ast.AST) -> str:
    """Return a node's text on one line, as a part of keys."""
    try:
        return " ".join(ast.unparse(node).split())
    except (AttributeError, ValueError, TypeError):  # a node that has no text of its own
        return type(node).__name__


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
    is_test = any(isinstance(each, Function) and each.name.startswith("test") for each in inner)
    return str(getattr(node, "name", "")) if is_test else ""


def _acts(node: ast.stmt, libraries: set[str]) -> bool:
    """Return whether a statement does more than define, import, or configure a library: torch.manual_seed(0)."""
    if isinstance(node, Definition | ast.Import | ast.ImportFrom | ast.Pass):
        return False
    calls = [each for each in ast.walk(node) if isinstance(each, ast.Call)]
    # unittest.main() and run_tests() find the tests by themselves
    is_setting = all(
        ast.unparse(call.func).partition(".")[0] in libraries and not called_name(call).startswith(("main", "run"))
        for call in calls
    )
    return not (isinstance(node, ast.Expr | ast.Assign | ast.AnnAssign) and is_setting)


def spans(node: ast.AST, line: int) -> bool:
    """Return whether a line is one of those of a node."""
    first = getattr(node, "lineno", None)
    return first is not None and first <= line <= (getattr(node, "end_lineno", None) or first)


@lru_cache(maxsize=4096)
def statement_line(path: str, line: int) -> int:
    """Return the first line of the innermost statement around a line: Pythons disagree on the lines of a long call."""
    tree = parsed(path)
    around = (
        [node.lineno for node in ast.walk(tree) if isinstance(node, ast.stmt) and spans(node, line)] if tree else []
    )
    return max(around, default=line)


def loops_around(path: str, line: int, function: str) -> list[ast.While | ast.For | ast.AsyncFor]:
    """Return the loops around a line of a function, the outermost first; those of functions around it do not count."""
    tree = parsed(path)
    around = [node for node in ast.walk(tree) if spans(node, line)] if tree else []
    around.sort(key=lambda node: getattr(node, "lineno", 0))
    starts = [number for number, node in enumerate(around) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = around[starts[-1] :] if starts and function != "<module>" else around
    return [node for node in inside if isinstance(node, ast.While | ast.For | ast.AsyncFor)]
