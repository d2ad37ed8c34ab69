"""Which statement of a Python file a line belongs to, where the file can still be read, and what it says of a wait."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

from whichtorch.base.redaction import restored
from whichtorch.model import Model
from whichtorch.source.syntax import parse_module


class HeldLock(Model):
    """A lock that a function has taken: by a `with` around the line, or by an `acquire` before it."""

    expression: str  # "target.guard"
    line: int
    is_returned: bool = True  # the function shows where it is given back, too


class SourceSite(Model):
    """What a line of source says of a wait that a thread has reached in it."""

    call: str = ""  # what is called, "dist.broadcast"
    target: str = ""  # of a method, the object: "batches" of `batches.get()`
    first: str = ""  # argument of the call
    origin: str = ""  # of a method, the call that its object came from: "dist.all_reduce" of `work.wait()`
    origin_line: int = 0
    wanted: str = ""  # the lock that this line asks for
    alias: str = ""  # the name that a `with` gives it: `pool` of `with Pool() as pool`
    held: tuple[HeldLock, ...] = ()
    loop: str = ""  # the condition of the innermost `while` around the line


_LARGEST = 2**22  # bytes of a source that are read


@lru_cache(maxsize=64)
def parsed(path: str) -> ast.Module | None:
    """Return the module that a file holds, None where it cannot be read; a path may be redacted."""
    try:
        with restored(Path(path)).open("rb") as file:
            return parse_module(file.read(_LARGEST))
    except (OSError, RuntimeError, SyntaxError, ValueError):
        return None


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
