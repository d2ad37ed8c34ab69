"""Read the user's source at a frame's line: which call it is in, which lock it wants, which locks it holds.

The file may have changed or be gone since the program started: then nothing is known, and nothing is said. A path may
be redacted, as the stacks are before they are read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from whichtorch.hangs.stacks import HeldLock, SourceSite
from whichtorch.source.syntax import blocks_in, parse_expression, parsed, spans

if TYPE_CHECKING:
    from whichtorch.hangs.stacks import Frame

_LONGEST = 60  # characters of an expression that are shown
_STEPS = 4  # from a variable to the one it came from
_TAKES, _GIVES = {"acquire", "__enter__"}, {"release", "__exit__"}
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Module


_NOWHERE = SourceSite()
_CALLED = re.compile(r"(\w+)\(")
_AWAITED = 48  # characters of an awaited expression that are shown
_MOST_AWAITED = 3  # places that are named
_DEEPEST = 3  # coroutines that call each other


def read_site(frame: Frame, callee: str = "") -> SourceSite:
    """Return what the source says of a Python frame, which is in a call of a function `callee` where that is known."""
    if frame.site is not None:
        return frame.site
    return _site(frame.file, frame.line, frame.method, callee) if frame.file and frame.line else _NOWHERE


@lru_cache(maxsize=4096)
def _site(file: str, line: int, function: str, callee: str) -> SourceSite:
    tree = parsed(file)
    if tree is None:
        return _NOWHERE
    scope = _scope(tree, line, function)
    around = [node for node in _within(scope) if spans(node, line)]
    call = _call(around, callee)
    withs = [node for node in around if isinstance(node, ast.With | ast.AsyncWith)]
    # A body on the line of its head has been reached where a call in it is known to be made.
    entered = [node for node in withs if callee and any(each is call for part in node.body for each in ast.walk(part))]
    items = [item for node in withs if node not in entered for item in _asked_items(node, line)]
    asked = [item.context_expr for item in items]
    method = call.func if call and isinstance(call.func, ast.Attribute) else None
    wanted = _shown(asked[0]) if asked else ""
    if method and method.attr in _TAKES:
        wanted = wanted or _shown(method.value)
    iterated = [node.iter for node in around if isinstance(node, ast.For) and spans(node.iter, line)]
    parts = [part.iter for node in around if isinstance(node, _COMPREHENSIONS) for part in node.generators]
    iterated += [part for part in parts if spans(part, line)]
    is_call = method is not None and (bool(callee) or method.attr in _WAITS or not iterated)
    target = method.value if method and is_call else _iterated(iterated[-1]) if iterated else None
    origin = _origin(scope, method.value, line) if method else None
    loops = [node for node in around if isinstance(node, ast.While)]
    return SourceSite(
        call=_shown(call.func) if call else "",
        target=_shown(target) if target else "",
        first=_shown(call.args[0]) if call and call.args else "",
        origin=_shown(origin.func) if origin else "",
        origin_line=origin.lineno if origin else 0,
        wanted=wanted,
        alias=next((_shown(item.optional_vars) for item in items if isinstance(item.optional_vars, ast.Name)), ""),
        held=tuple(_held(scope, around, line, entered)),
        loop=_shown(loops[-1].test) if loops else "",
    )


def keeps_lock(frame: Frame, expression: str) -> bool:
    """Return whether a context manager of the user, which asks for a lock at a frame's line, has it during its body."""
    tree = parsed(frame.file or "")
    if tree is None or not frame.line:
        return False
    scope = _scope(tree, frame.line, frame.method)
    nodes = list(_within(scope))
    yields = [node.lineno for node in nodes if isinstance(node, ast.Yield) and node.lineno > frame.line]
    # What a generator yields inside, and what an __enter__ has at its end.
    line = yields[0] if yields else (getattr(scope, "end_lineno", None) or frame.line) + 1
    around = [node for node in nodes if spans(node, line)]
    is_manager = bool(yields) or frame.method == "__enter__"
    return is_manager and any(held.expression == expression for held in _held(scope, around, line))


def owner_class(frame: Frame) -> str:
    """Return the class whose method a Python frame runs, "" where the frame is no method or nothing tells."""
    if "." in frame.function:
        return frame.function.removesuffix(f".{frame.method}").rpartition(".")[2]
    tree = parsed(frame.file or "") if frame.site is None else None
    for node in ast.walk(tree) if tree and frame.line else ():
        if isinstance(node, ast.ClassDef) and any(
            isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef)
            and member.name == frame.method
            and spans(member, frame.line or 0)
            for member in node.body
        ):
            return node.name
    return ""


def _scope(tree: ast.Module, line: int, name: str) -> Scope:
    """Return the function of a name around a line, else the innermost one, or the module."""
    if name == "<module>":
        return tree
    functions = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        and spans(node, line)
        and (name == "<lambda>" or not isinstance(node, ast.Lambda))
    ]
    # A decorator is no part of its function, but the line of its `def` is of the scope around it.
    inside = [node for node in functions if isinstance(node, ast.Lambda) or node.body[0].lineno <= line]
    named = [node for node in inside if getattr(node, "name", "<lambda>") == name]
    # A comprehension has a frame of its own in some versions of Python, and is no scope here.
    others = [node for node in inside if not isinstance(node, ast.Lambda)]
    return max(named or others, key=lambda node: node.lineno, default=tree)


def _within(scope: Scope) -> Iterator[ast.AST]:
    """Yield what a function or module holds, outer nodes first, without the functions and classes defined in it."""
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop(0)
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


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


# Functions that pass on what they are given.
_PASSES = {"as_completed", "enumerate", "filter", "iter", "list", "reversed", "set", "sorted", "tqdm", "tuple", "zip"}


def _origin(scope: Scope, value: ast.expr, line: int) -> ast.Call | None:
    """Return the call that has given the value of a variable, or the items of what a loop goes through."""
    for _ in range(_STEPS):
        if isinstance(value, ast.ListComp | ast.SetComp | ast.GeneratorExp):
            value = value.elt
        if isinstance(value, ast.List | ast.Tuple) and value.elts:
            value = value.elts[0]
        if isinstance(value, ast.Call) and _last_name(value.func) in _PASSES and value.args:
            value = value.args[0]
            continue
        if isinstance(value, ast.Call):
            return value
        if not isinstance(value, ast.Name):
            return None
        given = [found for node in _within(scope) if (found := _given(node, value.id)) and found.lineno <= line]
        if not given:
            return None
        value = max(given, key=lambda found: found.lineno)
    return None


def _given(node: ast.AST, name: str) -> ast.expr | None:
    """Return what a statement gives a variable, or appends to it."""
    match node:
        case (
            ast.Assign(targets=[ast.Name(id=known)], value=value)
            | ast.NamedExpr(target=ast.Name(id=known), value=value)
            | ast.For(target=ast.Name(id=known), iter=value)
            | ast.comprehension(target=ast.Name(id=known), iter=value)
            | ast.Call(func=ast.Attribute(value=ast.Name(id=known), attr="append"), args=[value])
        ):
            return value if known == name else None
    return None


# Functions written in C, which have no frame of their own, by the names under which they are called.
_WAITS = {
    "accept", "acquire", "connect", "fcntl", "flock", "get", "input", "join", "lockf", "open", "poll", "pop", "put",
    "read", "readinto", "readline", "recv", "recv_into", "recvfrom", "recvmsg", "select", "send", "sendall", "sendto",
    "sigwait", "sleep", "synchronize", "wait", "wait3", "wait4", "waitid", "waitpid", "write",
}  # fmt: skip


def _last_name(function: ast.expr) -> str:
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def _iterated(node: ast.expr) -> ast.expr:
    """Return what a loop takes its items from: `conn` of `iter(conn.recv, "stop")`."""
    if isinstance(node, ast.Call) and _last_name(node.func) in {"iter", "enumerate", "zip"} and node.args:
        return _iterated(node.args[0])
    return node.value if isinstance(node, ast.Attribute) and node.attr in _WAITS else node


def _asked_items(node: ast.With | ast.AsyncWith, line: int) -> list[ast.withitem]:
    """Return what a `with` statement enters on a line of its head."""
    if line >= node.body[0].lineno and node.body[0].lineno != node.lineno:
        return []
    return [item for item in node.items if spans(item.context_expr, line)]


def _held(scope: Scope, around: list[ast.AST], line: int, entered: Sequence[ast.AST] = ()) -> Iterator[HeldLock]:
    for node in around:
        is_inside = isinstance(node, ast.With | ast.AsyncWith) and node.body[0].lineno <= line and node.lineno < line
        if isinstance(node, ast.With | ast.AsyncWith) and (is_inside or node in entered):
            given_back = {name for name, at in _moved(node.body, line).items() if not at}
            for item in node.items:
                if (name := _shown(item.context_expr)) not in given_back:
                    yield HeldLock(expression=name, line=item.context_expr.lineno)
    taken = {name: at for name, at in _moved(getattr(scope, "body", []), line).items() if at}
    methods = (node.func for node in _within(scope) if isinstance(node, ast.Call))
    given = {_shown(each.value) for each in methods if isinstance(each, ast.Attribute) and each.attr in _GIVES}
    for expression, at in taken.items():
        yield HeldLock(expression=expression, line=at, is_returned=expression in given)


def _moved(block: object, line: int) -> dict[str, int]:
    """Return the locks that a block takes or releases before a line, with the line of the taking; 0: released."""
    moved: dict[str, int] = {}
    for call, is_sure in _calls_before(block, line):
        gives = _last_name(call.func) in _GIVES
        if isinstance(call.func, ast.Attribute) and (gives or (call.func.attr in _TAKES and is_sure)):
            moved[_shown(call.func.value)] = 0 if gives else call.lineno
    return moved


def _calls_before(block: object, line: int) -> Iterator[tuple[ast.Call, bool]]:
    """Yield the calls in a block before a line, and whether each surely ran and succeeded."""
    for statement in block if isinstance(block, list) else ():
        if statement.lineno >= line:
            return
        inner = list(blocks_in(statement))
        around = next((each for each in inner if each[0].lineno <= line <= (each[-1].end_lineno or line)), None)
        yield from _tested(statement, around)
        if around is not None:
            yield from _calls_before(around, line)
            return
        if isinstance(statement, ast.With | ast.AsyncWith | ast.Try):
            for name in ("body", "orelse", "finalbody"):
                yield from _calls_before(getattr(statement, name, []), line)
            continue
        calls = [node for node in _within(ast.Module([statement], [])) if isinstance(node, ast.Call)]
        for call in sorted(calls, key=lambda call: call.lineno):
            yield call, not (inner or call.args or call.keywords)


def _tested(statement: ast.stmt, around: list[ast.stmt] | None) -> Iterator[tuple[ast.Call, bool]]:
    """Yield the call that is the condition of a statement, and was successful where the program is in `around`."""
    match statement:
        case ast.If(test=ast.Call() as call, body=body):
            yield call, around is body
        case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call), body=[*_, last]):
            yield call, around is None and isinstance(last, ast.Return | ast.Raise | ast.Continue | ast.Break)
        case ast.While(test=ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call)):
            yield call, around is None


@lru_cache(maxsize=4096)
def shared_lock(file: str | None, expression: str) -> str:
    """Return the lock that a condition was made of, "" where the source shows none."""
    tree = parsed(file) if file else None
    for node in ast.walk(tree) if tree else ():
        match node:
            case ast.Assign(targets=[target], value=ast.Call(func=made, args=[lock])):
                is_it = _last_name(made) == "Condition" and _shown(target) == expression
                if is_it and isinstance(lock, ast.Name | ast.Attribute):
                    return _shown(lock)
    return ""


def _shown(node: ast.expr, longest: int = _LONGEST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= longest else f"{text[:longest]}…"


def awaited_words(place: Frame | None, given: str) -> str:
    """Return what a coroutine that is given to an event loop can await; "" if its source, in `place`, is not known.

    An event loop that is idle shows no frame of its coroutines.
    """
    tree = parsed(place.file or "") if place else None
    name = _last_called(given)
    if tree is None or not name:
        return ""
    places = list(dict.fromkeys(_awaits(tree, name, _DEEPEST)))
    if not places or len(places) > _MOST_AWAITED:
        return f"it runs `{name}`"
    awaited: dict[str, list[str]] = {}
    for function, words in places:
        awaited.setdefault(function, []).append(words)
    verb = "awaits" if len(places) == 1 else "can await"  # which one of them is not known
    return ", ".join(f"`{function}` {verb} {' or '.join(words)}" for function, words in awaited.items())


def awaited_at(place: Frame) -> str:
    """Return what a suspended coroutine awaits: "`jobs.join()` (serve.py:19) in `async with self.lock`".

    A coroutine that leaves an `async with` is at the line of its head. Of several things on a line, it awaits one.
    """
    tree, at = parsed(place.file or ""), place.line or 0
    around = [node for node in ast.walk(tree) if spans(node, at)] if tree else []
    scope = next((node for node in reversed(around) if isinstance(node, ast.AsyncFunctionDef)), None)
    nodes = [node for node in ast.walk(scope) if spans(node, at)] if scope else []
    awaited = dict.fromkeys(_shown(value, _AWAITED) for node in nodes for value in _awaited(node) if spans(value, at))
    kept = [node for node in nodes if isinstance(node, ast.AsyncWith) and at >= node.body[0].lineno][-1:]
    inside = "".join(f" in `async with {_shown(node.items[0].context_expr, _AWAITED)}`" for node in kept)
    return f"{' or '.join(f'`{each}`' for each in awaited) or 'something'} ({place.where}){inside}"


def _awaits(tree: ast.Module, name: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the functions that await something when a coroutine runs, and what: "`jobs.join()` (line 19)"."""
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)}
    for node in ast.walk(functions[name]) if name in functions else ():
        for value in _awaited(node):
            called = _last_name(value.func) if isinstance(value, ast.Call) else ""
            if called == "sleep":
                continue  # a loop that waits for a time to come is not idle
            if called not in functions:
                yield name, f"`{_shown(value, _AWAITED)}` (line {value.lineno})"
            calls = (_last_name(call.func) for call in ast.walk(value) if isinstance(call, ast.Call))
            for inner in dict.fromkeys(calls):
                if depth and inner != name:
                    yield from _awaits(tree, inner, depth - 1)


def _awaited(node: ast.AST) -> list[ast.expr]:
    match node:
        case ast.Await(value=value) | ast.AsyncFor(iter=value):
            return [value]
        case ast.AsyncWith(items=items):
            return [item.context_expr for item in items]
    return []


def _last_called(text: str) -> str:
    """Return the function whose call an expression is: "infer" of `Model().infer()`."""
    try:
        node = parse_expression(text)
    except SyntaxError:  # it is cut
        return next(iter(_CALLED.findall(text)), "")
    return _last_name(node.func) if isinstance(node, ast.Call) else ""


def suspended_holder(place: Frame, lock: str) -> str:
    """Return the coroutine that awaits something while it holds a lock of threads, "" where the source shows none."""
    tree = parsed(place.file or "")
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)] if tree else []
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.With) and any(ast.unparse(item.context_expr) == lock for item in node.items):
                inner = next((found for found in ast.walk(node) if isinstance(found, ast.Await)), None)
                if inner:
                    return f"`{function.name}` (line {inner.lineno})"
    return ""
