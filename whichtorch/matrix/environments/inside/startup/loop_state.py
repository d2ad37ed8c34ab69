"""Say where the main thread is and whether its `while` loop can ever end, when the supervisor asks by a signal.

A loop that comes back to the same place with the same state goes on for ever, if nothing but that state decides. So
the state is all that the loop can reach: variables, attributes, closures, elements of tensors, random generators. What
cannot be seen (an iterator, a file, another thread, the time) leaves the question open; the answer then says why.

Runs in the environments under test, under any Python that has torch wheels, with the standard library only, between
two instructions of the script. It calls no code of the script's, and changes nothing.
"""

from __future__ import annotations

import ast
import collections
import ctypes
import dis
import json
import os
import sys
import time
import types
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

VISITED = 20000  # values that are read for one digest, repeats included: some milliseconds
BYTES = 1 << 25  # of tensors, arrays and texts, likewise
NAMES = 12  # variables of a loop that are shown
SHOWN = 40  # characters of a value
LOOP_SIGNAL = 58  # what asks, see `sitecustomize.py`

# What these do follows from what they are given, and from the state of the random generators.
_PURE = {
    "abc", "builtins", "cmath", "collections", "copy", "dataclasses", "decimal", "enum", "fractions", "functools",
    "heapq", "json", "math", "numpy", "operator", "random", "re", "statistics", "string", "torch", "types", "typing",
}  # fmt: skip
_IMPURE = (
    "torch.distributed", "torch.multiprocessing", "torch.utils.data", "torch.cuda", "torch.futures", "torch.hub",
    "torch.mps", "torch.xpu", "torch.classes", "torch.library", "torch.serialization", "torch.utils.benchmark",
    "numpy.random",
)  # fmt: skip
_IMPURE_BUILTINS = {
    "input", "open", "exec", "eval", "compile", "__import__", "breakpoint", "next", "iter",
    "globals", "locals", "vars", "dir", "getattr", "setattr", "delattr", "hasattr",  # find names that no code shows
}  # fmt: skip
_IMPURE_NAMES = {  # of modules that are pure else: they read files, or are seeded by the system
    "load", "fromfile", "from_file", "loadtxt", "genfromtxt", "memmap", "Random", "SystemRandom",
}  # fmt: skip
_COUNTED = {"range", "enumerate"}  # iterators whose place shows in the loop's own variable
_PLAIN = (type(None), bool, int, float, complex, str, bytes, range, slice, type(Ellipsis), type(NotImplemented))
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_SIZED = (list, tuple, set, frozenset, collections.deque, *_MAPPINGS)
_CONSTANT = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.CodeType)
_CONSTANTS = {
    "date", "datetime", "timedelta", "device", "dtype", "layout", "memory_format", "Size", "bool_", "float32",
    "float64", "int32", "int64",
}  # fmt: skip
_HOLDS = {"__dict__", "__slots__", "__weakref__"}  # of a class: where its objects keep what they hold
_HEAP_TYPE = 1 << 9  # of type.__flags__: made by a class statement, or by newer C code
_LOOPS = (ast.While, ast.For, ast.AsyncFor)
_parsed: dict[str, ast.AST | None] = {}


class HiddenError(Exception):
    """Something that the loop depends on cannot be seen; its text says what."""


def is_users(code: types.CodeType) -> bool:
    """Return whether code is the user's: of no installed package, and not made by one."""
    return is_users_file(code.co_filename)


def is_users_file(file: str) -> bool:
    """Return the same of a file."""
    places = ("/site-packages/", "/dist-packages/", "/lib/python", "/environments/inside/")
    return bool(file) and not file.startswith("<") and not any(place in file for place in places)


def loops_around(code: types.CodeType, line: int) -> list[Any]:
    """Return the loops of a function whose body or head a line is in, the outermost first."""
    file = code.co_filename
    if file not in _parsed:
        try:
            with open(file, "rb") as source:
                _parsed[file] = ast.parse(source.read())
        except (OSError, SyntaxError, ValueError):
            _parsed[file] = None
    tree = _parsed[file]
    first = code.co_firstlineno if code.co_name != "<module>" else 0
    nodes = (node for node in ast.walk(tree) if isinstance(node, _LOOPS)) if tree else ()
    around = [node for node in nodes if first <= node.lineno <= line <= (node.end_lineno or line)]
    return sorted(around, key=lambda node: node.lineno)


class StateDigest:
    """The digest of all that some values can reach."""

    def __init__(self, *, with_gradients: bool = True) -> None:
        self.with_gradients = with_gradients
        self.crc, self.visited, self.bytes = 0, 0, 0
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []

    def add(self, *texts: object) -> None:
        """Take in texts."""
        self.crc = zlib.crc32("\0".join(map(str, texts)).encode("utf-8", "replace"), self.crc)

    def take(self, *values: Any) -> None:
        """Take in values and what they refer to; raise HiddenError for what cannot be seen."""
        waiting = list(values)[::-1]
        while waiting:
            value = waiting.pop()
            self.visited += 1
            if self.visited + len(waiting) + (len(value) if type(value) in _SIZED else 0) > VISITED:
                raise HiddenError("its state is too large")
            if type(value) is str:
                self.memory(value.encode("utf-8", "surrogatepass"), "str")
            elif type(value) is bytes:
                self.memory(value, "bytes")
            elif type(value) in _PLAIN:
                self.add(type(value).__name__, hex(value) if type(value) is int else repr(value))
            elif id(value) in self.seen:
                self.add("again", self.seen[id(value)])
            else:
                self.seen[id(value)] = self.visited
                self.kept.append(value)  # its id stays its own
                waiting.extend(list(self.parts(value))[::-1])

    def parts(self, value: Any) -> Iterator[Any]:
        """Take in what a value is, and yield what it refers to."""
        kind = type(value)
        self.add(kind.__name__)
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if kind in _MAPPINGS:
            self.add(len(value))
            yield value.default_factory if kind is collections.defaultdict else None
            for key, held in list(dict.items(value)):
                yield key
                yield held
        elif kind in _SIZED:
            self.add(len(value))
            yield from value
        elif torch and kind in (torch.Tensor, getattr(torch.nn, "Parameter", None)):
            yield from self.tensor(torch, value)
        elif numpy and kind is numpy.ndarray and not value.dtype.hasobject:
            self.memory(value.tobytes(), value.shape, value.dtype)
        elif kind.__module__ in ("datetime", "numpy", "torch") and kind.__name__ in _CONSTANTS:
            self.add(repr(value))
        elif kind is types.FunctionType:
            yield from self.function(value)
        elif kind is types.MethodType:
            yield value.__self__
            yield value.__func__
        elif kind is types.BuiltinMethodType and getattr(value, "__self__", None) is not None:
            check_origin(value)
            yield value.__self__ if not isinstance(value.__self__, types.ModuleType) else None
        elif kind.__name__ == "partial":
            yield from (value.func, value.args, value.keywords)
        elif isinstance(value, types.ModuleType):
            raise HiddenError("its state holds a module")
        elif isinstance(value, type):
            yield from self.type(value)
        elif kind in (property, staticmethod, classmethod):
            yield from (getattr(value, name, None) for name in ("fget", "fset", "__func__"))
        elif isinstance(value, _CONSTANT) or kind.__name__.endswith("_descriptor"):
            check_origin(value)
        elif is_python_class(kind):
            yield from self.type(kind)
            yield from self.attributes(value)
        else:
            raise HiddenError(f"the contents of a `{kind.__name__}` cannot be read")

    def attributes(self, value: Any) -> Iterator[Any]:
        """Yield what an object of a class of Python holds."""
        try:
            yield object.__getattribute__(value, "__dict__")
        except AttributeError:
            yield None
        for kind in type(value).__mro__:
            slots = [each for each in kind.__dict__.values() if type(each) is types.MemberDescriptorType]
            yield from (slot_value(slot, value) for slot in slots)

    def tensor(self, torch: Any, value: Any) -> Iterator[Any]:
        """Take in the elements of a plain tensor on the CPU."""
        try:
            if value.device.type != "cpu" or value.layout is not torch.strided or value.is_shared():
                raise HiddenError("a tensor is sparse, shared, or not on the CPU")
            size = value.element_size()
            extent = (
                1 + sum((length - 1) * step for length, step in zip(value.shape, value.stride()))
                if value.numel()
                else 0
            )
            memory = ctypes.string_at(value.data_ptr(), extent * size) if extent else b""
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise HiddenError(f"a tensor cannot be read ({type(error).__name__})") from None
        self.memory(memory, tuple(value.shape), value.stride(), value.dtype, value.requires_grad)
        yield value.grad if value.is_leaf and self.with_gradients else None

    def memory(self, memory: bytes, *facts: object) -> None:
        """Take in bytes, and what they mean."""
        self.bytes += len(memory)
        if self.bytes > BYTES:
            raise HiddenError("its state is too large")
        self.add(*facts)
        self.crc = zlib.crc32(memory, self.crc)

    def function(self, value: Any) -> Iterator[Any]:
        """Yield what a function of the user's can reach; what a library's does follows from what it is given."""
        if not is_users(value.__code__):
            check_origin(value)
        else:
            yield from (value.__defaults__, value.__kwdefaults__, value.__dict__)
            yield from (cell.cell_contents for cell in value.__closure__ or () if cell_is_set(cell))
            yield from looked_up(value.__code__, value.__globals__)

    def type(self, kind: Any) -> Iterator[Any]:
        """Yield what a class of the user's holds: its attributes may change, and its methods reach more."""
        module = sys.modules.get(kind.__module__)
        if not is_python_class(kind) or not is_users_file(getattr(module, "__file__", None) or ""):
            check_origin(kind)
            return
        for name, value in list(vars(kind).items()):
            if name not in ("__dict__", "__weakref__", "__module__", "__doc__", "__abstractmethods__", "_abc_impl"):
                yield value
        yield from kind.__bases__


def slot_value(slot: Any, value: Any) -> Any:
    """Return what a slot of an object holds, None where it is not set."""
    try:
        return slot.__get__(value)
    except AttributeError:
        return None


def cell_is_set(cell: Any) -> bool:
    """Return whether a closure's variable has a value."""
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


def is_python_class(kind: Any) -> bool:
    """Return whether instances of a class hold no more than attributes: all of it was made by class statements."""
    for each in kind.__mro__[:-1]:
        file = getattr(sys.modules.get(each.__module__), "__file__", None) or ""
        holds = _HOLDS & set(each.__dict__) or len(each.__mro__) > 2
        if not (each.__flags__ & _HEAP_TYPE and file.endswith(".py") and holds):
            return False
    return True


def check_origin(value: Any) -> None:
    """Raise HiddenError for what may ask the world: the time, files, processes, devices."""
    module = value.__name__ if isinstance(value, types.ModuleType) else getattr(value, "__module__", None)
    owner = getattr(value, "__self__", None)
    if module is None and owner is not None:
        module = getattr(owner, "__name__", None) if isinstance(owner, types.ModuleType) else type(owner).__module__
    module = module or getattr(getattr(value, "__objclass__", None), "__module__", None) or "torch"
    root = str(module).partition(".")[0].lstrip("_")
    loaded = sys.modules.get(str(module))
    is_own = is_users_file(getattr(loaded, "__file__", None) or "")
    if str(module).startswith(_IMPURE) or (root not in _PURE and not is_own):
        raise HiddenError(f"it uses `{module}`")
    names = _IMPURE_BUILTINS if root == "builtins" else _IMPURE_NAMES if root in _PURE else ()
    if getattr(value, "__name__", "") in names:
        raise HiddenError(f"it calls `{value.__name__}`")


def code_names(code: types.CodeType) -> set[str]:
    """Return the names that a function and those defined in it look up."""
    inner = (code_names(each) for each in code.co_consts if isinstance(each, types.CodeType))
    return set(code.co_names).union(*inner)


def imported(code: types.CodeType) -> Iterator[Any]:
    """Yield the modules that a function and those defined in it import."""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            parts = str(step.argval).split(".")
            modules = [sys.modules.get(".".join(parts[: end + 1])) for end in range(len(parts))]
            if not parts[0] or None in modules:
                raise HiddenError("it imports a module")
            yield from modules
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield from imported(each)


def looked_up(code: types.CodeType, scope: Any, modules: Any = ()) -> Iterator[Any]:
    """Yield what a function's names refer to, also through the modules that it imports and those given."""
    return named(code_names(code), scope, [*imported(code), *modules])


def named(names: Any, scope: Any, modules: Any = ()) -> Iterator[Any]:
    """Yield what names refer to in a scope: of a module of the user's all that it holds, of others what is named."""
    if not names.isdisjoint({"__dict__", "__getattribute__", "__globals__"}):
        raise HiddenError("it looks up names dynamically")
    builtin = sys.modules["builtins"].__dict__
    waiting = [scope.get(name, builtin.get(name)) for name in sorted(names) if name in scope or name in builtin]
    waiting.extend(modules)
    expanded: list[Any] = []
    while waiting:
        value = waiting.pop()
        if not isinstance(value, types.ModuleType):
            yield value
        elif not any(value is each for each in expanded):
            expanded.append(value)
            check_origin(value)
            if is_users_file(getattr(value, "__file__", None) or ""):
                # It may be passed to a function that uses attributes which are not among `names`.
                reached = {name for name in value.__dict__ if not name.startswith("__")}
            else:
                reached = names & set(value.__dict__)
            waiting.extend(value.__dict__[name] for name in sorted(reached))


def loop_names(loop: Any) -> set[str]:
    """Return the names that a loop has in its source, attributes among them."""
    names = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(loop) if isinstance(node, ast.Attribute)}


def check_stack(frames: list[Any], position: int) -> None:
    """Raise HiddenError where a frame may get on without a trace in what can be seen."""
    for number, frame in enumerate(frames):
        code = frame.f_code
        if not is_users(code) and number > position:
            if "runpy" not in code.co_filename and "fork_server" not in code.co_filename:
                raise HiddenError("it is called from a library")
            continue
        if not is_users(code):
            check_origin(types.ModuleType(frame.f_globals.get("__name__", "?")))
        if code.co_flags & 0x2A0 or (code.co_name.startswith("<") and code.co_name != "<module>"):
            raise HiddenError("it is in a generator, coroutine, comprehension or lambda")
        for loop in loops_around(code, frame.f_lineno):
            call = getattr(loop, "iter", None)
            if call is not None and getattr(getattr(call, "func", None), "id", "") not in _COUNTED:
                raise HiddenError("the position of a `for` loop cannot be read")
            if number > position:
                raise HiddenError("its function is called in a loop")


def check_world(signal: Any) -> None:
    """Raise HiddenError where another thread or a signal may end the loop."""
    if len(sys._current_frames()) > 1:
        raise HiddenError("other threads run")
    handlers = [signal.getsignal(number) for number in range(1, signal.NSIG) if number != LOOP_SIGNAL]
    if any(callable(handler) and handler is not signal.default_int_handler for handler in handlers):
        raise HiddenError("a signal handler may end it")
    if any(signal.getitimer(which)[0] for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)):
        raise HiddenError("a timer may end it")
    if sys.gettrace() or sys.getprofile():
        raise HiddenError("a tracer or profiler is active")
    own = [module for module in list(sys.modules.values()) if is_users_file(getattr(module, "__file__", None) or "")]
    held = [value for module in own for value in list(vars(module).values())]
    if any(map(is_of_collector, held)):
        raise HiddenError("a finalizer, or a callback of gc or weakref, may end it")


def is_of_collector(value: Any) -> bool:
    """Return whether the garbage collector may call something because of a value; calls nothing of the value's."""
    collectors = ("gc", "weakref", "_weakref")
    if isinstance(value, types.ModuleType):
        return value.__name__ in collectors
    if isinstance(value, type):
        return value.__module__ in collectors or any("__del__" in each.__dict__ for each in value.__mro__)
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType)):
        return value.__module__ in collectors
    return type(value).__module__ in collectors


def loop_state(frames: list[Any], position: int, loop: Any, signal: Any) -> int:
    """Return the digest of all that decides whether a loop ends; raise HiddenError."""
    check_world(signal)
    check_stack(frames, position)
    state = StateDigest()
    frame = frames[position]
    scope = dict(frame.f_globals)
    scope.update(frame.f_locals)
    state.take(*named(loop_names(loop), scope))
    for inner in frames[:position]:
        held = list(inner.f_locals.values())
        if is_users(inner.f_code):
            modules = [value for value in held if isinstance(value, types.ModuleType)]
            state.take(*looked_up(inner.f_code, inner.f_globals, modules))
            held = [value for value in held if not isinstance(value, types.ModuleType)]
        state.take(held)
    for name, module in (("random", sys.modules.get("random")), ("numpy", sys.modules.get("numpy.random"))):
        if module is not None:
            state.add(name, module.getstate() if name == "random" else module.get_state())
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "default_generator"):
        state.take(torch.default_generator.get_state())
    return state.crc


def shown(value: Any) -> str:
    """Return a value as people read it, "" for one that has no short text."""
    torch = sys.modules.get("torch")
    if type(value) is str:
        return repr(value[:SHOWN])[:SHOWN]
    if type(value) in (bool, float) or value is None or (type(value) is int and abs(value) < 10**SHOWN):
        return repr(value)
    if torch and type(value) is torch.Tensor and value.numel() == 1 and value.device.type == "cpu":
        return repr(value.detach().item())[:SHOWN]
    return ""


def values_of(frame: Any, loops: list[Any]) -> dict[str, list[Any]]:
    """Return the variables of loops: a digest, None for what cannot be seen, and a text."""
    names: dict[str, None] = {}
    for loop in loops[::-1]:
        test = getattr(loop, "test", None) or loop.target
        found = [node.id for node in ast.walk(test) if isinstance(node, ast.Name)]
        found += [
            node.id for node in ast.walk(loop) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)
        ]
        names.update(dict.fromkeys(found))
    rows = {}
    for name in [name for name in names if name in frame.f_locals][:NAMES]:
        value, state = frame.f_locals[name], StateDigest(with_gradients=False)
        try:
            state.take(value)
            digest: int | None = state.crc
        except Exception:  # noqa: BLE001 - what cannot be read is not known
            digest = None
        rows[name] = [digest, shown(value)]
    return rows


def report(frame: Any, path: str, signal: Any) -> None:
    """Append a line on where the main thread is, and on the state of its outermost `while` loop."""
    torch = sys.modules.get("torch")
    evaluator = sys.modules.get("torch._C._dynamo.eval_frame")
    before = evaluator.set_eval_frame(None) if evaluator else None  # Dynamo compiles what is called
    try:
        guard = torch._C.DisableTorchFunction() if torch is not None and hasattr(torch, "_C") else None
        try:
            if guard is not None:
                guard.__enter__()
            began = time.perf_counter()
            answer = seen(frame, signal)
            line = json.dumps(dict(answer, seconds=round(time.perf_counter() - began, 3)))
        finally:
            if guard is not None:
                guard.__exit__(None, None, None)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            os.write(descriptor, (line + "\n").encode())
        finally:
            os.close(descriptor)
    finally:
        if evaluator:
            evaluator.set_eval_frame(before)


def seen(frame: Any, signal: Any) -> dict[str, Any]:
    """Return what is seen of a stack: the user's frames with their loops' variables, its place, the loop's state."""
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    rows, hidden, state = [], "it is not a `while` loop", None
    outermost = None
    for number, each in enumerate(frames):
        if is_users(each.f_code):
            loops = loops_around(each.f_code, each.f_lineno)
            row = {"file": each.f_code.co_filename, "function": each.f_code.co_name, "line": each.f_lineno or 0}
            rows.append(dict(row, values=values_of(each, loops)))
            whiles = [loop for loop in loops if isinstance(loop, ast.While)]
            outermost = (number, whiles[0]) if whiles else outermost
    if outermost:
        try:
            state, hidden = loop_state(frames, outermost[0], outermost[1], signal), ""
        except HiddenError as error:
            hidden = str(error)
    place = zlib.crc32(repr([(each.f_code.co_name, each.f_lasti) for each in frames]).encode())
    return {"frames": rows, "place": place, "state": state, "hidden": hidden}
