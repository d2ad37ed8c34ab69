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
import contextlib
import ctypes
import dis
import functools
import itertools
import json
import marshal
import sys
import time
import types
import weakref
import zlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Iterator

VISITED = 20000  # values that are read for one digest, repeats included: some milliseconds
BYTES = 1 << 25  # of tensors, arrays and texts, likewise
NAMES = 12  # variables of a loop that are shown
SHOWN = 40  # characters of a value
_PYTEST = "/_pytest/"  # folder of its code
OUR_SIGNALS = (57, 58)  # what asks: see `sitecustomize.py`; what ends a test: see whichtorch/watch/__init__.py

# What these do follows from what they are given, and from the state of the random generators.
_PURE = {
    "abc", "builtins", "cmath", "collections", "contextlib", "copy", "dataclasses", "enum", "fractions", "functools",
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
# Libraries that call what is the user's once, and go on where it returns: pytest calls each test so.
_CALLERS = ("runpy", "fork_server", _PYTEST, "/pluggy/", "/pytest/__main__.py", "/unittest/case.py")
_COUNTED = {"range", "enumerate"}  # iterators whose place shows in the loop's own variable
# Native code that calls Python for one item after the other, by the names that its caller uses, or has: nothing shows
# which item it is at.
_ITEM_BY_ITEM = {"map", "filter", "reduce", "sub", "subn", "_engine_run_backward", "_vectorize_call",
                 "apply_", "map_", "map2_"}  # fmt: skip
# Special methods that Python calls once. C code may call any other one for item after item of a container.
_ONCE = {"__init__", "__new__", "__call__", "__enter__", "__exit__"}
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))  # what marshal writes
_MAPPINGS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)
_SIZED = (list, tuple, set, frozenset, collections.deque, *_MAPPINGS)
_FIELDS: dict[type, tuple[str, ...]] = {  # types that hold nothing but these
    range: ("start", "stop", "step"),
    slice: ("start", "stop", "step"),
    property: ("fget", "fset"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    types.MethodType: ("__self__", "__func__"),
    functools.partial: ("func", "args", "keywords"),
    type(NotImplemented): (),
}
_CONSTANT = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.CodeType)
_CONSTANTS = {
    "date", "datetime", "timedelta", "device", "dtype", "layout", "memory_format", "Size", "bool_", "float32",
    "float64", "int32", "int64",
}  # fmt: skip
_HOLDS = {"__dict__", "__slots__", "__weakref__"}  # of a class: where its objects keep what they hold
_CONSTANT_NAMES = {"__dict__", "__weakref__", "__module__", "__doc__", "__abstractmethods__", "_abc_impl"}  # no state
_HEAP_TYPE = 1 << 9  # of type.__flags__: made by a class statement, or by newer C code
_LOOPS = (ast.While, ast.For, ast.AsyncFor)
_INLINED = (ast.ListComp, ast.SetComp, ast.DictComp) if sys.version_info >= (3, 12) else ()  # they have no frame
_RANDOM = (("random", "getstate"), ("numpy.random", "get_state"), ("torch.random", "get_rng_state"))
_HOOKS = (  # each returns something true while a library calls functions of the user's that no name in a loop shows
    ("torch._C", "_len_torch_function_stack"), ("torch._C", "_len_torch_dispatch_stack"),
    ("torch.nn.modules.module", "_has_any_global_hook"), ("numpy", "geterrcall"),
)  # fmt: skip
_REGISTRARS = {"gc", "weakref", "_weakref", "torch.library"}  # whose objects let C code call the user's functions
_FINGER = object.__basicsize__ + 5 * ctypes.sizeof(ctypes.c_void_p)  # where a set has the place of its next `pop`


class HiddenError(Exception):
    """Something that the loop depends on cannot be seen; its text says what."""


def is_users(origin: Any) -> bool:
    """Return whether a file, or a module's file, is the user's: neither in an installed package nor made by one."""
    file = origin if isinstance(origin, str) else getattr(origin, "__file__", None) or ""
    places = ("/site-packages/", "/dist-packages/", "/lib/python", "/whichtorch/inside/")
    return bool(file) and not file.startswith("<") and not any(place in file for place in places)


def is_users_python(module: Any) -> bool:
    """Return whether a module is the user's, and not of native code: what that keeps is not seen."""
    return (getattr(module, "__file__", None) or "").endswith(".py") and is_users(module)


@functools.lru_cache(maxsize=None)
def loops_of(file: str) -> list[Any]:
    """Return the loops in a file, the outer ones first; none where it cannot be read."""
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read())
    except (OSError, SyntaxError, ValueError):
        return []
    loops = (node for node in ast.walk(tree) if isinstance(node, (*_LOOPS, *_INLINED)))
    return sorted(loops, key=lambda node: node.lineno)


def loops_around(code: types.CodeType, line: int, kinds: Any = _LOOPS) -> list[Any]:
    """Return the loops of a function whose body or head a line is in, the outermost first."""
    first = code.co_firstlineno if code.co_name != "<module>" else 0
    loops = (node for node in loops_of(code.co_filename) if isinstance(node, kinds))
    return [node for node in loops if first <= node.lineno <= line <= (node.end_lineno or line)]


class StateDigest:
    """The digest of all that some values can reach."""

    def __init__(self, *, with_gradients: bool = True) -> None:
        self.with_gradients = with_gradients
        self.crc, self.visited, self.bytes = 0, 0, 0
        self.seen: dict[int, tuple[int, Any]] = {}  # by id: when a value was met, and the value, which keeps its id

    def add(self, *facts: object, memory: bytes = b"") -> None:
        """Take in the texts of facts, and bytes."""
        self.bytes += len(memory)
        if self.bytes > BYTES:
            raise HiddenError("its state is too large")
        self.crc = zlib.crc32(memory, zlib.crc32("\0".join(map(str, facts)).encode("utf-8", "replace"), self.crc))

    def take(self, *values: Any) -> None:
        """Take in values and what they refer to; raise HiddenError for what cannot be seen."""
        waiting = list(values)[::-1]
        while waiting:
            value = waiting.pop()
            self.visited += 1
            if self.visited + len(waiting) + (len(value) if type(value) in _SIZED else 0) > VISITED:
                raise HiddenError("its state is too large")
            if type(value) in _PLAIN:
                self.add(memory=marshal.dumps(value, 2))  # later formats also write which objects are identical
            elif id(value) in self.seen:
                self.add("again", self.seen[id(value)][0])
            else:
                self.seen[id(value)] = self.visited, value
                waiting.extend(list(self.parts(value))[::-1])

    def parts(self, value: Any) -> Iterator[Any]:
        """Take in what a value is, and yield what it refers to."""
        kind = type(value)
        self.add(kind.__name__)
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if kind in _SIZED:
            self.add(len(value), ctypes.c_ssize_t.from_address(id(value) + _FINGER).value if kind is set else "")
            yield getattr(value, "default_factory", None)
            yield from itertools.chain.from_iterable(value.items()) if kind in _MAPPINGS else value
        elif kind in _FIELDS:
            yield from (getattr(value, name) for name in _FIELDS[kind])
        elif torch and kind in (torch.Tensor, getattr(torch.nn, "Parameter", None)):
            yield from self.tensor(torch, value)
        elif numpy and kind is numpy.ndarray and not value.dtype.hasobject:
            self.check_unshared(value.__array_interface__["data"][0])
            self.add(value.shape, value.dtype, memory=value.tobytes())
        elif kind.__module__ in ("datetime", "numpy", "torch") and kind.__name__ in _CONSTANTS:
            self.add(repr(value))
        elif kind is types.FunctionType:
            yield from function_parts(value)
        elif kind is types.BuiltinMethodType and getattr(value, "__self__", None) is not None:
            check_origin(value)
            yield value.__self__ if not isinstance(value.__self__, types.ModuleType) else None
        elif isinstance(value, types.ModuleType):
            raise HiddenError("its state holds a module")
        elif isinstance(value, type):
            yield from class_parts(value)
            yield kind if kind is not type else None
        elif torch and not kind.__flags__ & _HEAP_TYPE and hasattr(kind, "next_functions"):  # in a graph of autograd
            yield from (function for function, _ in value.next_functions)
        elif isinstance(value, _CONSTANT) or kind.__name__.endswith(("_descriptor", "_tuplegetter")):
            check_origin(value)
        elif is_python_class(kind):
            yield from class_parts(kind)
            yield held_by(object.__getattribute__, value, "__dict__")
            slots = (slot for each in kind.__mro__ for slot in each.__dict__.values())
            yield from (held_by(slot.__get__, value) for slot in slots if type(slot) is types.MemberDescriptorType)
        else:
            raise HiddenError(f"the contents of a `{kind.__name__}` cannot be read")

    @functools.cached_property
    def shared_ranges(self) -> list[list[int]]:
        """The addresses of memory that other processes may write to: start and end of each range."""
        with open("/proc/self/maps", "rb") as file:
            rows = [line.split(None, 2) for line in file]
        return [[int(end, 16) for end in row[0].split(b"-")] for row in rows if row[1].endswith(b"s")]

    def check_unshared(self, address: int) -> None:
        """Raise HiddenError for memory that other processes may write to."""
        if any(start <= address < end for start, end in self.shared_ranges):
            raise HiddenError("an array or a tensor is in shared memory")

    def tensor(self, torch: Any, value: Any) -> Iterator[Any]:
        """Take in the elements of a plain tensor on the CPU."""
        try:
            if value.device.type != "cpu" or value.layout is not torch.strided or value.is_shared():
                raise HiddenError("a tensor is sparse, shared, or not on the CPU")
            self.check_unshared(value.data_ptr())
            extent = 1 + sum((length - 1) * step for length, step in zip(value.shape, value.stride()))
            memory = ctypes.string_at(value.data_ptr(), extent * value.element_size()) if value.numel() else b""
        except (RuntimeError, TypeError, ValueError, AttributeError) as error:
            raise HiddenError(f"a tensor cannot be read ({type(error).__name__})") from None
        self.add(tuple(value.shape), value.stride(), value.dtype, value.requires_grad, memory=memory)
        yield value.__dict__
        if self.with_gradients:
            yield value.grad if value.is_leaf or getattr(value, "retains_grad", False) else None
            yield value.grad_fn
            yield value._backward_hooks
            yield getattr(value, "_post_accumulate_grad_hooks", None)


def function_parts(value: Any) -> Iterator[Any]:
    """Yield what a user's function can reach. What a library's does follows from its arguments and its closure."""
    yield from (held_by(getattr, cell, "cell_contents") for cell in value.__closure__ or ())
    if not is_users(value.__code__.co_filename):
        check_origin(value)
        if hasattr(value, "__wrapped__"):  # a decorator of a library gives it the names of the user's function
            check_origin(types.ModuleType(value.__globals__.get("__name__", "?")))
            yield value.__wrapped__
        return
    yield from (value.__code__.co_name, value.__code__.co_firstlineno)
    yield from (value.__defaults__, value.__kwdefaults__, value.__dict__)
    yield from looked_up(value.__code__, value.__globals__)


def class_parts(kind: Any) -> Iterator[Any]:
    """Yield what a user's class holds: its attributes may change, and its methods reach more."""
    if kind.__flags__ & _HEAP_TYPE and is_users_python(sys.modules.get(kind.__module__)):
        yield from (value for name, value in vars(kind).items() if name not in _CONSTANT_NAMES)
        yield from kind.__bases__
    else:
        check_origin(kind)


def held_by(read: Any, *arguments: Any) -> Any:
    """Return what a slot or a closure's variable holds; a text where it is not set."""
    try:
        return read(*arguments)
    except (AttributeError, ValueError):
        return "<not set>"


def is_python_class(kind: Any) -> bool:
    """Return whether instances of a class hold no more than attributes: all of it was made by class statements."""
    for each in kind.__mro__[:-1]:
        file = getattr(sys.modules.get(each.__module__), "__file__", None) or ""
        holds = _HOLDS & set(each.__dict__) or len(each.__mro__) > 2
        if not (each.__flags__ & _HEAP_TYPE and file.endswith(".py") and holds) or holds_more(each):
            return False
    return True


def holds_more(kind: Any) -> bool:
    """Return whether objects of a class have room for more than its slots, a dictionary and weak references.

    What C code keeps there cannot be seen, as how often a cache was hit.
    """
    slots = sum(type(value) is types.MemberDescriptorType for value in vars(kind).values())
    room = (slots + 2) * ctypes.sizeof(ctypes.c_void_p)
    return bool(kind.__basicsize__ - kind.__base__.__basicsize__ > room)


def module_of(value: Any) -> str:
    """Return the name of the module that a function, class or descriptor belongs to; "torch" where it does not say."""
    if isinstance(value, types.ModuleType):
        return value.__name__
    module = getattr(value, "__module__", None)  # every class has it, so no metaclass is asked
    if module:
        return str(module)
    owner = getattr(value, "__self__", None)
    owner = getattr(value, "__objclass__", None) if owner is None else owner
    if owner is None:
        return "torch"
    return module_of(owner if isinstance(owner, (type, types.ModuleType)) else type(owner))


def check_origin(value: Any) -> None:
    """Raise HiddenError for what may ask the world: the time, files, processes, devices."""
    module = module_of(value)
    if module.startswith("namedtuple_"):  # which makes its __new__ in a module of its own
        return
    root = module.partition(".")[0].lstrip("_")
    if module.startswith(_IMPURE) or (root not in _PURE and not is_users_python(sys.modules.get(module))):
        raise HiddenError(f"it uses `{module}`")
    name = getattr(value, "__name__", "")
    if root == "builtins":
        is_hidden = name in _IMPURE_BUILTINS
    else:  # get… and set… read or change what C code keeps, as torch.get_num_threads does
        is_hidden = root in _PURE and (name in _IMPURE_NAMES or name.startswith(("get", "set")))
    if is_hidden:
        raise HiddenError(f"it calls `{name}`")


def looked_up(code: types.CodeType, scope: Any, modules: Any = ()) -> Iterator[Any]:
    """Yield what the names of a function, and of those defined in it, refer to.

    This includes what they reach through the modules that they import, and through those given.
    """
    names: set[str] = set()
    codes, imported = [code], list(modules)
    for each in codes:
        codes += [inner for inner in each.co_consts if isinstance(inner, types.CodeType)]
        names.update(each.co_names)
        for step in dis.get_instructions(each):
            if step.opname == "IMPORT_NAME":
                packages = itertools.accumulate(str(step.argval).split("."), "{}.{}".format)
                found = [sys.modules.get(package) for package in packages]
                if None in found:
                    raise HiddenError("it imports a module")
                imported += found
    yield from named(names, scope, imported)


def named(names: Any, scope: Any, modules: Any = ()) -> Iterator[Any]:
    """Yield what names refer to in a scope: of a module of the user's all that it holds, of others what is named."""
    if not names.isdisjoint({"__dict__", "__getattribute__", "__globals__"}):
        raise HiddenError("it looks up names dynamically")
    known = collections.ChainMap(scope, sys.modules["builtins"].__dict__)
    waiting = [known[name] for name in sorted(names) if name in known]
    waiting.extend(modules)
    expanded: set[int] = set()
    while waiting:
        value = waiting.pop()
        if not isinstance(value, types.ModuleType):
            yield value
        elif id(value) not in expanded:
            expanded.add(id(value))
            check_origin(value)
            if type(value) is not types.ModuleType or (is_users(value) and "__getattr__" in value.__dict__):
                raise HiddenError("a module computes what it holds")
            # a module of the user's may be passed to a function that uses attributes which are not among `names`
            is_own, held = is_users(value), value.__dict__
            reached = [name for name in held if (not name.startswith("__") if is_own else name in names)]
            waiting.extend(held[name] for name in sorted(reached))


def loop_names(loop: Any) -> set[str]:
    """Return the names that a loop has in its source, attributes among them."""
    names = {node.id for node in ast.walk(loop) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(loop) if isinstance(node, ast.Attribute)}


def is_counted(loop: Any) -> bool:
    """Return whether the variables of a `for` loop show where it is, as nothing in it changes them."""
    bound = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    inner = (node for each in loop.body for node in ast.walk(each) if isinstance(node, ast.Name))
    is_kept = not any(node.id in bound and not isinstance(node.ctx, ast.Load) for node in inner)
    return is_kept and getattr(getattr(loop.iter, "func", None), "id", "") in _COUNTED


def check_stack(frames: list[Any], position: int) -> None:
    """Raise HiddenError where a frame may get on without a trace in what can be seen."""
    tests = {*map(test_of, frames)} - {0, id(None)}
    if not tests and any(_PYTEST in frame.f_code.co_filename for frame in frames):  # it collects tests
        raise HiddenError("pytest may call it again and again while it collects tests")
    for number, frame in enumerate(frames):
        code = frame.f_code
        is_own = is_users(code.co_filename)
        if not is_own and number > position:
            if not any(caller in code.co_filename for caller in _CALLERS):
                raise HiddenError("it is called from a library")
            continue
        if not is_own:
            check_origin(types.ModuleType(frame.f_globals.get("__name__", "?")))
        keywords = (each for each in code.co_consts if type(each) is tuple)
        by_item = number and (_ITEM_BY_ITEM & {code.co_name, *code.co_names} or any("key" in each for each in keywords))
        is_special = code.co_name[:2] == code.co_name[-2:] == "__" and code.co_name not in _ONCE
        if by_item or (number < position and is_special):
            raise HiddenError("it is called for one item after the other")
        if code.co_flags & 0x2A0 or (code.co_name.startswith("<") and code.co_name != "<module>"):
            raise HiddenError("it is in a generator, coroutine, comprehension or lambda")
        for loop in loops_around(code, frame.f_lineno, (*_LOOPS, *_INLINED)):
            if isinstance(loop, _INLINED) or not (isinstance(loop, ast.While) or is_counted(loop)):
                raise HiddenError("the position of a `for` loop or a comprehension cannot be read")
            if number > position:
                raise HiddenError("its function is called in a loop")


def check_world(signal: Any) -> None:
    """Raise HiddenError where another thread or a signal may end the loop."""
    if len(sys._current_frames()) > 1:
        raise HiddenError("other threads run")
    handlers = [signal.getsignal(number) for number in range(1, signal.NSIG) if number not in OUR_SIGNALS]
    if any(callable(handler) and handler is not signal.default_int_handler for handler in handlers):
        raise HiddenError("a signal handler may end it")
    if any(signal.getitimer(which)[0] for which in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)):
        raise HiddenError("a timer may end it")
    tools = getattr(sys, "monitoring", None)
    if sys.gettrace() or sys.getprofile() or (tools and any(map(tools.get_tool, range(6)))):
        raise HiddenError("a tracer or profiler is active")
    hooks = [getattr(sys.modules.get(module), name, None) for module, name in _HOOKS]
    if any(hook() for hook in hooks if hook):
        raise HiddenError("a hook may end it")
    own = filter(is_users, list(sys.modules.values()))
    if any(may_be_called_back(value) for module in own for value in list(vars(module).values())):
        raise HiddenError("a finalizer, a callback of gc or weakref, or an operator of its own may end it")


def may_be_called_back(value: Any) -> bool:
    """Return whether the garbage collector or an operator may call what a value holds; this calls nothing of it."""
    if isinstance(value, type) and any("__del__" in each.__dict__ for each in value.__mro__):
        return True
    says_module = isinstance(value, (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType))
    return module_of(value if says_module else type(value)) in _REGISTRARS


def loop_state(frames: list[Any], position: int, loop: Any, signal: Any) -> int:
    """Return the digest of all that decides whether a loop ends; raise HiddenError."""
    check_world(signal)
    check_stack(frames, position)
    state = StateDigest()
    frame = frames[position]
    state.take(*named(loop_names(loop), collections.ChainMap(frame.f_locals, frame.f_globals)))
    for inner in frames[:position]:
        held = list(inner.f_locals.values())
        if is_users(inner.f_code.co_filename):
            modules = [value for value in held if isinstance(value, types.ModuleType)]
            state.take(*looked_up(inner.f_code, inner.f_globals, modules))
            held = [value for value in held if not isinstance(value, types.ModuleType)]
        state.take(held)
    for module, read in _RANDOM:
        if module in sys.modules:
            state.take(getattr(sys.modules[module], read)())
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
        decides = ast.walk(getattr(loop, "test", None) or loop.target)
        names.update((node.id, None) for node in decides if isinstance(node, ast.Name))
        bound = (node for node in ast.walk(loop) if isinstance(node, ast.Name))
        names.update((node.id, None) for node in bound if not isinstance(node.ctx, ast.Load))
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


def report_after_handler(*arguments: Any) -> Any:
    """Let a report be made when the handler of a signal ends, and drops the object that is returned.

    The handler may run in the middle of an instruction: long calls of C code, as a search of `re` or a large power,
    look for signals. When the object goes, its weak reference queues `report_waiting`, which CPython then calls
    between two instructions.
    """
    held: Any = set()
    _waiting.append((arguments, weakref.ref(held, functools.partial(_ADD, _PENDING, None))))
    return held


def report_waiting(_: Any) -> int:
    """Make the report that is due; if that fails, call the `unknown` function that came with it."""
    (path, signal, unknown), _ = _waiting.pop(0)
    try:
        report(sys._getframe(1), path, signal)
    except Exception:  # noqa: BLE001 - a module that it needs may be half imported
        unknown(path)
    return 0


_waiting: list[Any] = []
_PENDING = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(report_waiting)
_ADD = ctypes.PyDLL(None).Py_AddPendingCall  # in C: a callback in Python would run too early
_ADD.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.py_object)


def report(frame: Any, path: str, signal: Any) -> None:
    """Append a line on where the main thread is, and on the state of its outermost `while` loop."""
    torch: Any = sys.modules.get("torch")
    evaluator = sys.modules.get("torch._C._dynamo.eval_frame")
    before = evaluator.set_eval_frame(None) if evaluator else None  # Dynamo compiles what is called
    try:
        began = time.thread_time()  # of a core: a first answer beside others takes long, and may yet be cheap
        with torch._C.DisableTorchFunction() if hasattr(torch, "_C") else contextlib.nullcontext():
            answer = seen(frame, signal)
        answer["seconds"] = round(time.thread_time() - began, 3)
        with open(path, "ab", buffering=0) as file:
            file.write(json.dumps(answer).encode() + b"\n")
    finally:
        if evaluator:
            evaluator.set_eval_frame(before)


def test_of(frame: Any) -> int:
    """Return which test a frame of pytest runs: a function may be called for several; 0 for another frame."""
    return id(frame.f_locals.get("item")) if _PYTEST in frame.f_code.co_filename else 0


def seen(frame: Any, signal: Any) -> dict[str, Any]:
    """Return what is seen of a stack: frames with their loops' variables, its place, the loop's state.

    The frames are the user's, and those of a library in a `while` loop below the user's innermost one.
    """
    frames: list[Any] = []
    rows: list[dict[str, Any]] = []
    outermost = None
    while frame is not None:
        code, line = frame.f_code, frame.f_lineno
        is_own = is_users(code.co_filename)
        if is_own or not any(row["is_users"] for row in rows):
            loops = loops_around(code, line)
            whiles = [loop for loop in loops if isinstance(loop, ast.While)]
            if is_own or whiles:
                row = {"file": code.co_filename, "function": code.co_name, "line": line or 0, "is_users": is_own}
                rows.append(dict(row, values=values_of(frame, loops if is_own else whiles)))
            outermost = (len(frames), whiles[0]) if whiles and is_own else outermost
        frames.append(frame)
        frame = frame.f_back
    state, hidden = None, "it is not a `while` loop"
    if outermost:
        try:
            state, hidden = loop_state(frames, *outermost, signal), ""
        except HiddenError as error:
            hidden = str(error)
    place = zlib.crc32(repr([(each.f_code.co_name, each.f_lasti, test_of(each)) for each in frames]).encode())
    return {"frames": rows, "place": place, "state": state, "hidden": hidden}
