"""Read the user's source at a frame's line: which call it is in, which lock it wants, which locks it holds.

The file may have changed or be gone since the program started: then nothing is known, and nothing is said. A path may
be redacted, as the stacks are before they are read.
"""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from matrix.diagnosis.source_site import HeldLock, SourceSite
from matrix.privacy.redaction import restored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matrix.diagnosis.stacks import Frame

_LARGEST = 2**22  # bytes of a source that are read
_LONGEST = 60  # characters of an expression that are shown
_TAKES, _GIVES = {"acquire", "__enter__"}, {"release", "__exit__"}
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


_NOWHERE = SourceSite()


def read_site(frame: Frame, callee: str = "") -> SourceSite:
    """Return what the source says of a Python frame, which is in a call of a function `callee` where that is known."""
    if frame.site is not None:
        return frame.site
    return _site(frame.file, frame.line, callee) if frame.file and frame.line else _NOWHERE


@lru_cache(maxsize=4096)
def _site(file: str, line: int, callee: str) -> SourceSite:
    tree = _parsed(file)
    if tree is None:
        return _NOWHERE
    scope = _scope(tree, line)
    around = [node for node in _within(scope) if _spans(node, line)]
    call = _call(around, callee)
    asked = [item for node in around if isinstance(node, ast.With | ast.AsyncWith) for item in _asked_items(node, line)]
    method = call.func if call and isinstance(call.func, ast.Attribute) else None
    wanted = _shown(asked[0]) if asked else ""
    if method and method.attr in _TAKES:
        wanted = wanted or _shown(method.value)
    loops = [node for node in around if isinstance(node, ast.While) and node.body[0].lineno <= line]
    return SourceSite(
        call=_shown(call.func) if call else "",
        target=_shown(method.value) if method else "",
        first=_shown(call.args[0]) if call and call.args else "",
        wanted=wanted,
        held=tuple(_held(scope, around, line)),
        loop=_shown(loops[-1].test) if loops else "",
    )


def owner_class(frame: Frame) -> str:
    """Return the class whose method a Python frame runs, "" where the frame is no method or nothing tells."""
    if "." in frame.function:
        return frame.function.removesuffix(f".{frame.method}").rpartition(".")[2]
    tree = _parsed(frame.file or "") if frame.site is None else None
    for node in ast.walk(tree) if tree and frame.line else ():
        if isinstance(node, ast.ClassDef) and any(
            isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            and member.name == frame.method
            and _spans(member, frame.line or 0)
            for member in node.body
        ):
            return node.name
    return ""


@lru_cache(maxsize=64)
def _parsed(path: str) -> ast.Module | None:
    try:
        with restored(Path(path)).open("rb") as file:
            return ast.parse(file.read(_LARGEST))
    except (OSError, RuntimeError, SyntaxError, ValueError):
        return None


def _scope(tree: ast.Module, line: int) -> Scope:
    """Return the innermost function around a line, or the module."""
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and _spans(node, line)
    ]
    # A decorator is no part of its function, but the line of its `def` is of the scope around it.
    inside = [node for node in functions if isinstance(node, ast.Lambda) or node.body[0].lineno <= line]
    return max(inside, key=lambda node: node.lineno, default=tree)


def _within(scope: Scope) -> Iterator[ast.AST]:
    """Yield what a function or module holds, outer nodes first, without the functions and classes defined in it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def _spans(node: ast.AST, line: int) -> bool:
    first = getattr(node, "lineno", None)
    return first is not None and first <= line <= (getattr(node, "end_lineno", None) or first)


def _call(around: list[ast.AST], callee: str) -> ast.Call | None:
    """Return the call that a line is in: that of the known function, else the only one that can be meant."""
    calls = [node for node in around if isinstance(node, ast.Call)]
    named = [call for call in calls if callee and _last_name(call.func) == callee]
    if named:
        return named[-1]
    if callee:
        return None
    waits = [call for call in calls if _last_name(call.func) in _WAITS]
    return waits[-1] if waits else calls[0] if len(calls) == 1 else None


# Functions written in C, which have no frame of their own, by the names under which they are called.
_WAITS = {
    "accept", "acquire", "connect", "fcntl", "flock", "get", "input", "join", "lockf", "open", "poll", "pop", "put",
    "read", "readinto", "readline", "recv", "recv_into", "recvfrom", "recvmsg", "select", "send", "sendall", "sendto",
    "sigwait", "sleep", "synchronize", "wait", "wait3", "wait4", "waitid", "waitpid", "write",
}  # fmt: skip


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _asked_items(node: ast.With | ast.AsyncWith, line: int) -> list[ast.expr]:
    """Return what a `with` statement enters on a line of its head."""
    if line >= node.body[0].lineno and node.body[0].lineno != node.lineno:
        return []
    return [item.context_expr for item in node.items if _spans(item.context_expr, line)]


def _held(scope: Scope, around: list[ast.AST], line: int) -> Iterator[HeldLock]:
    for node in around:
        if isinstance(node, ast.With | ast.AsyncWith) and node.body[0].lineno <= line and node.lineno < line:
            for item in node.items:
                yield HeldLock(expression=_shown(item.context_expr), line=item.context_expr.lineno)
    taken: dict[str, int] = {}
    calls = [node for node in _within(scope) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    for call in sorted(calls, key=lambda call: call.lineno):
        if isinstance(call.func, ast.Attribute) and call.lineno < line:
            if call.func.attr in _TAKES:
                taken[_shown(call.func.value)] = call.lineno
            elif call.func.attr in _GIVES:
                taken.pop(_shown(call.func.value), None)
    yield from (HeldLock(expression=expression, line=at) for expression, at in taken.items())


def _shown(node: ast.expr) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
