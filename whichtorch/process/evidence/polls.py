"""Tell polls that go on for ever from those that may end by themselves, by their threads' frames and the source.

A poll is a wait with a timeout in a loop. It goes on for ever if nothing that runs from one wait to the next can come
to another result: the loop looks at nothing but what it waits for. A clock, a count, any other call, or a name or an
attribute that is no flag may. Some loops of libraries do more, and were read: they are in a table.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import time
from functools import lru_cache
from pathlib import Path
from signal import SIGHUP, SIGUSR1, SIGUSR2
from typing import TYPE_CHECKING, Any

from whichtorch.process import kernel
from whichtorch.process.spawning import QUIET, find_tool
from whichtorch.source.code_owner import LIBRARIES
from whichtorch.source.syntax import parse_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from whichtorch.process.evidence.stall import Waiter

PATIENCE = 2.0  # seconds for the frames of all processes, during which the supervisor does nothing else
SOURCE = 1 << 20  # bytes of a source file that are read
MOST = 16  # processes whose frames are read
FOLDERS = 4  # above a file, in which its imports are looked for
ROUNDS = 2  # times that a poll must have been seen to return to the same wait

# Loops of libraries that go on until what they wait for comes, or the process or the thread that sends it has ended.
_ENDLESS = re.compile(
    r"torch/utils/data/dataloader\.py:(_try_get_data|_get_data)|torch/utils/data/_utils/worker\.py:_worker_loop"
    r"|torch/utils/data/_utils/pin_memory\.py:(do_one_step|_pin_memory_loop)|tqdm/_monitor\.py:run"
    r"|torch/distributed/elastic/(agent/server/api\.py:_invoke_run|rendezvous/utils\.py:_run)"
    r"|multiprocessing/(resource_sharer\.py:_serve|managers\.py:(serve_forever|accepter))"
)
_WAITING_FILES = re.compile(  # of the standard library: each function in them that has a timeout waits once
    r"/(threading|queue|selectors|socket|multiprocessing/(queues|connection|synchronize|popen_\w+|process)"
    r"|concurrent/futures/_base)\.py$"
)
# Where a main thread waits for a condition: Python runs the handlers of signals in it, and one may notify it.
_NOTIFIED = re.compile(r"/(threading|multiprocessing/synchronize)\.py:wait$|/asyncio/base_events\.py:_run_once$")
_WORKER = "torch/utils/data/_utils/worker.py"  # of a DataLoader: there torch's native code has the handler of SIGTERM
_WAITS = {"acquire", "get", "join", "poll", "recv", "result", "select", "wait"}
_RAISE = {"get", "recv", "result"}  # those of them that raise where they have waited in vain
_LOOKS = {"is_set", "isSet"}  # at an event
_LOOKS_AT_AWAITED = {"done", "empty", "full", "is_alive", "locked", "qsize"}
# Methods with which a class decides itself, perhaps by a clock, what a look at its object or a wait for it comes to.
_COMPARE = {"__contains__", "__eq__", "__ge__", "__gt__", "__le__", "__lt__", "__ne__"}
_TRUTH = {"__bool__", "__len__"}
_DECIDE = {*_LOOKS, *_LOOKS_AT_AWAITED, "_qsize", *_COMPARE, *_TRUTH}
_PLAIN = (
    ast.stmt, ast.Constant, ast.UnaryOp, ast.BoolOp, ast.BinOp, ast.Compare, ast.Tuple, ast.List,
    ast.keyword, ast.expr_context, ast.boolop, ast.unaryop, ast.cmpop, ast.operator,
)  # fmt: skip
_COUNTING = (ast.AugAssign, ast.AnnAssign, ast.For, ast.AsyncFor, ast.AsyncWith, ast.Delete, ast.Import)


def go_on_for_ever(waiters: Sequence[Waiter], rounds: Mapping[int, int]) -> bool:
    """Return whether it is certain that no wait of these ends by itself, or does anything when it ends.

    `rounds` says how often each thread has come back to its wait.
    """
    dumps = read_frames({waiter.process.pid for waiter in waiters})
    return dumps is not None and all(_goes_on(waiter, dumps, rounds) for waiter in waiters)


def may_end_by_signal(waiters: Sequence[Waiter]) -> bool:
    """Return whether the handler of a signal may end the wait of one of these main threads.

    It may where the thread waits for a condition, as of an event or a queue, in asyncio, or for what is not known.
    """
    dumps = read_frames({waiter.process.pid for waiter in waiters})
    return dumps is None or any(_is_notified(each, dumps[each.process.pid].get(each.thread.tid)) for each in waiters)


def _is_notified(waiter: Waiter, frames: Sequence[Mapping[str, Any]] | None) -> bool:
    """Return whether a main thread with these frames, innermost first, waits for what a handler may bring about."""
    if any(frame["filename"].endswith(_WORKER) for frame in frames or ()):
        files = {frame["filename"] for frame in frames or () if not LIBRARIES.search(frame["filename"])}
        is_users = any("SIGTERM" in ast.dump(_tree(file) or ast.Module([], [])) for file in files)
        return is_users or any(kernel.catches(waiter.process.pid, number) for number in (SIGHUP, SIGUSR1, SIGUSR2))
    places = [f"{frame['filename']}:{frame['name'].rpartition('.')[2]}" for frame in (frames or ())[:2]]
    return not (places and waiter.thread.call) or any(map(_NOTIFIED.search, places))


def read_frames(pids: set[int]) -> dict[int, dict[int, list[dict[str, Any]]]] | None:
    """Return the Python frames of processes by process and thread, innermost first; None where one cannot be read."""
    if len(pids) > MOST:
        return None
    end = time.monotonic() + PATIENCE
    argv = (find_tool("py-spy") or "py-spy", "dump", "--json", "--nonblocking", "--pid")
    dumps: dict[int, dict[int, list[dict[str, Any]]]] = {}
    try:
        environ, nothing = os.environ | QUIET, subprocess.DEVNULL
        readers = {
            pid: subprocess.Popen((*argv, str(pid)), stdout=subprocess.PIPE, stderr=nothing, env=environ)
            for pid in pids
        }
        try:
            for pid, reader in readers.items():
                threads = json.loads(reader.communicate(timeout=max(0.0, end - time.monotonic()))[0])
                dumps[pid] = {thread["os_thread_id"]: thread["frames"] for thread in threads}
        finally:
            for reader in readers.values():
                reader.kill()
                reader.communicate()  # it closes the pipe, too
    except (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError):
        return None
    return dumps


def _goes_on(waiter: Waiter, dumps: Mapping[int, Mapping[int, Any]], rounds: Mapping[int, int]) -> bool:
    """Return whether one wait goes on for ever."""
    pid, tid = waiter.process.pid, waiter.thread.tid
    frames = dumps[pid].get(tid)
    if waiter.wait.is_beside_stopped:  # in the standard library, it may be a task of the user's, as that of a timer
        files = [frame["filename"] for frame in frames or ()]
        return bool(files) and "-packages/" in files[0] and all(map(LIBRARIES.search, files))
    if waiter.wait.is_far:  # torch's own code waits so long for nothing but to give up
        is_torch = waiter.thread.name.startswith("pt_") or bool(frames and "/torch/" in frames[0]["filename"])
        return is_torch or bool(frames and only_sleeps(frames[0]))
    if not frames:  # native code, of which only gloo's is known
        return waiter.wait.is_service and bool(waiter.wait.descriptors)
    running = dict.fromkeys(frame["filename"] for own in dumps[pid].values() for frame in own)
    files = [file for file in running if not LIBRARIES.search(file)]
    return loops_for_ever(frames, is_seen=rounds.get(tid, 0) >= ROUNDS, files=files)


def only_sleeps(frame: Mapping[str, Any]) -> bool:
    """Return whether a frame is in `while True: time.sleep(3600)`, with nothing else in the loop."""
    match _loop(_body(frame["filename"], frame["name"].rpartition(".")[2], frame["line"]) or [], frame["line"]):
        case ast.While(test=ast.Constant(), body=[ast.Expr(value=ast.Call(args=[ast.Constant() | ast.Name()]))]):
            return True
    return False


def loops_for_ever(frames: Sequence[Mapping[str, Any]], *, is_seen: bool, files: Sequence[str] = ()) -> bool:
    """Return whether a thread with these frames, innermost first, waits in a loop that comes to no other result.

    `is_seen`: it was seen to go round. `files`: the user's files that its process runs, which may have the classes of
    what it looks at.
    """
    callee, is_wait = "", True
    for frame in frames:
        path, function, line = frame["filename"], frame["name"].rpartition(".")[2], frame["line"]
        if is_wait and _WAITING_FILES.search(path):
            callee = function
            continue
        is_wait = False
        is_known = _ENDLESS.search(f"{path}:{function}") is not None
        body = _body(path, function, line)
        if body is None:
            return False
        loop = _loop(body, line)
        if isinstance(loop, ast.While) and is_known:
            return True
        if not is_known and (
            isinstance(loop, ast.For) or not _is_plain_round((path, *files), body, loop, line, callee)
        ):
            return False
        if loop is not None:
            return is_seen and isinstance(loop, ast.While)
        callee = function
    return False


@lru_cache(maxsize=64)
def _tree(path: str) -> ast.Module | None:
    try:
        return parse_module(kernel.read(path, SOURCE))
    except (OSError, ValueError, SyntaxError, RecursionError):
        return None


def _covers(node: ast.AST, line: int) -> bool:
    return getattr(node, "lineno", line + 1) <= line <= (getattr(node, "end_lineno", 0) or 0)


def _body(path: str, function: str, line: int) -> list[ast.stmt] | None:
    """Return the statements of the function that a frame is in, None where its source is not known."""
    tree = _tree(path)
    if tree is None or function == "<module>":
        return tree.body if tree else None
    functions = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == function and _covers(node, line)
    )
    found = max(functions, key=lambda node: node.lineno, default=None)
    return found.body if found else None


def _loop(body: Sequence[ast.stmt], line: int) -> ast.stmt | None:
    """Return the innermost loop around a line."""
    loops = [
        node
        for statement in body
        for node in ast.walk(statement)
        if isinstance(node, ast.For | ast.AsyncFor | ast.While)
        and any(_covers(part, line) for part in (*node.body, *([node.test] if isinstance(node, ast.While) else [])))
    ]
    return max(loops, key=lambda node: node.lineno, default=None)


def _is_plain_round(
    files: Sequence[str], body: Sequence[ast.stmt], loop: ast.stmt | None, line: int, callee: str
) -> bool:
    """Return whether what runs from one wait to the next, in the first of files, looks only at what is waited for."""
    parts: list[ast.AST] = [*body]
    if isinstance(loop, ast.While):
        parts = [loop.test, *_each_round(loop.body, line, callee)]
    deciding = set[str]().union(*(_deciding(each) for file in files for each in (file, *_imported(file))))
    if callee == "wait_for" or deciding & _looked_at(parts):
        return False
    flags = _flags(files[0])
    calls = [
        node
        for part in parts
        for node in ast.walk(part)
        if isinstance(node, ast.Call) and _covers(node, line) and _called(node) in ({callee} if callee else _WAITS)
    ]
    return len(calls) == 1 and all(_is_plain(part, calls[0], flags) for part in parts)


def _each_round(body: Iterable[ast.stmt], line: int, callee: str) -> Iterator[ast.AST]:
    """Yield what runs in each round of a loop: not what follows a wait that raises, if its handlers go on."""
    for statement in body:
        if not (isinstance(statement, ast.Try) and _is_in_vain(statement, line, callee)):
            yield statement
            continue
        yield from (each for each in statement.body if each.lineno <= line)
        yield from (each for handler in statement.handlers for each in handler.body)
        if all(isinstance(handler.body[-1], ast.Continue) for handler in statement.handlers):
            yield from statement.finalbody
            return


def _is_in_vain(statement: ast.Try, line: int, callee: str) -> bool:
    """Return whether a line in a `try` waits with a function that raises where it has waited in vain."""
    waits = (each for part in statement.body if _covers(part, line) for each in ast.walk(part))
    names = {_called(each) for each in waits if isinstance(each, ast.Call)}
    return bool(statement.handlers) and bool(names & _RAISE) and (not callee or callee in names & _RAISE)


def _looked_at(parts: Sequence[ast.AST]) -> set[str]:
    """Return the methods that code calls, also where it compares, or asks whether something is true."""
    nodes = [node for part in parts for node in ast.walk(part)]
    found = {_called(node) for node in nodes if isinstance(node, ast.Call)} | {"_qsize"}
    found |= _COMPARE if any(isinstance(node, ast.Compare) for node in nodes) else set()
    tests = [*parts[:1], *(node.test for node in nodes if isinstance(node, ast.If | ast.While))]
    return found | (_TRUTH if any(map(_is_truth_of_name, tests)) else set())


def _is_truth_of_name(test: ast.AST) -> bool:
    if isinstance(test, ast.BoolOp | ast.UnaryOp):
        return any(map(_is_truth_of_name, ast.iter_child_nodes(test)))
    return isinstance(test, ast.Name | ast.Attribute)


@lru_cache(maxsize=256)
def _deciding(path: str) -> frozenset[str]:
    """Return the methods of classes of a module whose result may change from call to call."""
    found = set[str]()
    for node in ast.walk(_tree(path) or ast.Module([], [])):
        if isinstance(node, ast.ClassDef):
            methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
            found |= methods & _DECIDE - ({"__len__"} if "__getitem__" in methods else set())
    return frozenset(found)


@lru_cache(maxsize=256)
def _imported(path: str) -> frozenset[str]:
    """Return the files that a user's module imports, whichever folder above it they are named from."""
    names = set[str]()
    for node in ast.walk(_tree(path) or ast.Module([], [])) if not LIBRARIES.search(path) else ():
        if isinstance(node, ast.ImportFrom | ast.Import):
            module = getattr(node, "module", None) or ""
            names |= {module, *(name for alias in node.names for name in (alias.name, f"{module}.{alias.name}"))}
    ends = [f"{name.strip('.').replace('.', '/')}.py" for name in names]
    places = (folder / end for folder in list(Path(path).parents)[:FOLDERS] for end in ends)
    return frozenset(map(str, filter(Path.is_file, places)))


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


@lru_cache(maxsize=64)
def _flags(path: str) -> frozenset[str]:
    """Return the flags of a module: names and attributes of `self` set only to constants or results of waits."""
    nodes = list(ast.walk(_tree(path) or ast.Module([], [])))
    functions = {f"self.{node.name}" for node in nodes if isinstance(node, ast.FunctionDef)}
    if functions & {"self.__getattr__", "self.__getattribute__"}:
        return frozenset()
    given = [pair for node in nodes if isinstance(node, ast.Assign) for pair in _pairs(node)]
    plain = {id(each): ast.unparse(each) for each, value in given if _is_own(each) and _is_constant_or_wait(value)}
    bound = (node for node in nodes if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store))
    others = {ast.unparse(node) for node in bound if id(node) not in plain}
    arguments = {node.arg for node in nodes if isinstance(node, ast.arg)}
    return frozenset(plain.values()) - others - arguments - functions


def _is_own(node: ast.expr) -> bool:
    """Return whether something is a name, or an attribute of `self`."""
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self")


def _is_constant_or_wait(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Call) and _called(node) in _WAITS)


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield what is set by an assignment with what it is set to."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def _is_plain(node: ast.AST, wait: ast.Call, flags: frozenset[str]) -> bool:
    """Return whether a piece of code only waits, and looks at what it waits for and at names that compute nothing."""
    awaited = ast.dump(wait.func.value) if isinstance(wait.func, ast.Attribute) else None
    parts: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.Call):
        receiver = ast.dump(node.func.value) if isinstance(node.func, ast.Attribute) else ""
        looks = _LOOKS | (_LOOKS_AT_AWAITED if receiver == awaited else set())
        is_plain, parts = node is wait or (bool(receiver) and _called(node) in looks), (*node.args, *node.keywords)
        values = (each.value if isinstance(each, ast.keyword) else each for each in parts)
        parts = (each for each in values if not isinstance(each, ast.Name))  # a plain name computes nothing
    elif isinstance(node, ast.ExceptHandler):
        is_plain, parts = True, node.body
    elif isinstance(node, ast.Assign):
        is_plain = node.value is wait and all(isinstance(each, ast.Name) for each in node.targets)
        parts = [node.value]
    elif isinstance(node, ast.With):
        is_plain, parts = [ast.dump(item.context_expr) for item in node.items] == [awaited], node.body
    elif isinstance(node, ast.Name | ast.Attribute):
        is_plain, parts = ast.unparse(node) in flags, ()
    else:
        is_plain = isinstance(node, _PLAIN) and not isinstance(node, _COUNTING)
    return is_plain and all(_is_plain(part, wait, flags) for part in parts)
