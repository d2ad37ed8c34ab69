"""Read in the source what coroutines await: an event loop that is idle shows no frame of them."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, NamedTuple

from whichtorch.matrix.diagnosis.hang.source_text import parsed_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from whichtorch.matrix.diagnosis.hang.user_call import UserCall
    from whichtorch.matrix.diagnosis.stacks import Frame

_CALLED = re.compile(r"(\w+)\(")
_LONGEST = 48  # characters of an expression that are shown
_MOST = 3  # places that are named
_DEEPEST = 3  # coroutines that call each other


class AwaitExpression(NamedTuple):
    """What a coroutine awaits somewhere."""

    function: str
    line: int
    expression: str

    @property
    def words(self) -> str:
        """As a user reads it: "`jobs.join()` (line 19)"."""
        return f"`{self.expression}` (line {self.line})"


def awaited_words(user: UserCall) -> str:
    """Return what the coroutine that a thread has given to an event loop can await, by the source; "" if unknown."""
    tree = parsed_source(user.place) if user.place else None
    match = _last_called(user.site.first)
    if tree is None or not match:
        return ""
    places = list(dict.fromkeys(_awaits(tree, match, _DEEPEST)))
    functions = list(dict.fromkeys(place.function for place in places))
    if not places or len(places) > _MOST:
        return f"it runs `{match}`"
    clauses = [
        f"`{name}` awaits {' or '.join(place.words for place in places if place.function == name)}"
        for name in functions
    ]
    return ", ".join(clauses)


def suspended_holder(place: Frame, lock: str) -> str:
    """Return the coroutine that awaits something while it holds a lock of threads, "" where the source shows none."""
    tree = parsed_source(place)
    for function in ast.walk(tree) if tree else ():
        if not isinstance(function, ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.With) and any(ast.unparse(item.context_expr) == lock for item in node.items):
                inner = next((found for found in ast.walk(node) if isinstance(found, ast.Await)), None)
                if inner:
                    return f"`{function.name}` (line {inner.lineno})"
    return ""


def _awaits(tree: ast.Module, name: str, depth: int) -> Iterator[AwaitExpression]:
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    if name not in functions:
        return
    for node in ast.walk(functions[name]):
        values: list[ast.expr] = []
        if isinstance(node, ast.Await):
            values = [node.value]
        elif isinstance(node, ast.AsyncFor):
            values = [node.iter]
        elif isinstance(node, ast.AsyncWith):
            values = [item.context_expr for item in node.items]
        for value in values:
            if isinstance(value, ast.Call) and _name(value) == "sleep":
                continue  # a loop that waits for a time to come is not idle
            if isinstance(value, ast.Call) and _name(value) == "sleep":
                continue  # a loop that waits for a time to come is not idle
            called = [
                found for call in ast.walk(value) if isinstance(call, ast.Call) and (found := _name(call)) in functions
            ]
            if not (isinstance(value, ast.Call) and _name(value) in functions):
                text = " ".join(ast.unparse(value).split())
                yield AwaitExpression(name, value.lineno, text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…")
            for inner in dict.fromkeys(called):
                if depth and inner != name:
                    yield from _awaits(tree, inner, depth - 1)


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _last_called(text: str) -> str:
    """Return the function whose call an expression is: "infer" of `Model().infer()`."""
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        found = _CALLED.findall(text)
        return str(found[0]) if found else ""
    return _name(node) if isinstance(node, ast.Call) else ""
