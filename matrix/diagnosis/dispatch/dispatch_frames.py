"""Say where in the dispatcher a thread is, from its native frames: release wheels keep the symbols for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from matrix.diagnosis.dispatch.call_path import PATH, Caller, Place, Stage, expected, path
from matrix.diagnosis.dispatch.operator_table import KernelKind, Table
from matrix.diagnosis.hang.waits import Wait, Waiting, classify
from matrix.diagnosis.symbols import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from matrix.diagnosis.stacks import Frame, Thread

_WAITS = {
    Waiting.GIL: Stage.WAITING_GIL,
    Waiting.LOCK: Stage.WAITING_LOCK,
    Waiting.CONDITION: Stage.WAITING_CONDITION,
    Waiting.THREAD: Stage.WAITING_THREAD,
    Waiting.CHILD: Stage.WAITING_CHILD,
    Waiting.OPENMP: Stage.WAITING_OPENMP,
    Waiting.IO: Stage.WAITING_IO,
    Waiting.PIPE: Stage.WAITING_IO,
    Waiting.DEVICE: Stage.WAITING_DEVICE,
}
_OPERATOR = re.compile(r"^at::_ops::(?P<name>\w+)::(?P<how>call|redispatch)$")
_OVERLOAD = re.compile(
    r"^(?P<name>.+?)_(?P<overload>dim_(?:Int|Dimname)List|memory_format|dtype_layout|[A-Z]\w*|out|int|dim|dimname|self|other)$"
)
_WRAPPER = re.compile(r"(?:^|::)wrapper_(?P<key>[A-Z][A-Za-z0-9]*?)_")
_AUTOGRAD = re.compile(
    r"^torch::(?:autograd::VariableType|ADInplaceOrView|TraceType)::|^torch::autograd::VariableHooks::basic_autograd"
)
_PYTHON_KERNEL = re.compile(r"PythonKernelHolder::operator\(\)$")
_PYTHON_KEY = re.compile(r"(?:^|::)(?:pythonFallback|ConcretePyInterpreterVTable::(?:dispatch|python_dispatcher))$")
_BOXED = re.compile(
    r"(?:BoxedKernelWrapper::call|KernelFunction::callBoxed|BoxedKernel::callBoxed|make_boxed_function|make_boxed_from_unboxed_functor::call|Dispatcher::(?:re)?(?:dispatch|call)Boxed)$"
)
_UNBOXED = re.compile(r"wrap_kernel_functor_unboxed_::call$")
_LOOKUP = re.compile(r"OperatorEntry::lookup$")
_BOXED_CALL = re.compile(r"^c10::(?:Dispatcher|OperatorHandle)::(?:call|redispatch)Boxed$")
_CPP_KERNEL = re.compile(r"^at::(?:native|cpu|cuda|meta)::|^at::wrapper_|structured_")
_ENGINE = "torch::autograd::Engine::"
_COMPILED = re.compile(r"torchinductor|torch/_inductor/output_code\.py|torch/_inductor/codecache\.py$")


def operator_name(symbol: str, known: Iterable[str] = ()) -> str:
    """Return the operator of a name in `at::_ops`: `mm` is aten::mm, `add_Tensor` is aten::add.Tensor.

    The symbol joins name and overload by an underscore. Where no `known` operator is spelt so, an overload begins
    with a capital, or is one of the common others.
    """
    exact = next((name for name in known if name.partition("::")[2].replace(".", "_") == symbol), None)
    if exact:
        return exact
    found = _OVERLOAD.match(symbol)
    return f"aten::{found['name']}.{found['overload']}" if found else f"aten::{symbol}"


def place_of(thread: Thread, tables: Mapping[str, Table] | None = None) -> Place | None:
    """Return where in the dispatcher a thread is, None where its frames are not in it."""
    frames = thread.frames
    innermost = next((place for place, frame in enumerate(frames) if _is_dispatch(frame)), None)
    if innermost is None:
        return None
    operators = [(place, found) for place, frame in enumerate(frames) if (found := _OPERATOR.match(frame.function))]
    name = None
    own = _boxed_call(frames, innermost)  # frames of the innermost operator's own call and redispatches
    if operators and not _is_inner_boxed_call(frames, operators[0][0]):
        name = operators[0][1]["name"]
        own = _own_frames(operators)
    return _describe(thread, name, own, operators, tables or {})


def _is_dispatch(frame: Frame) -> bool:
    return not frame.is_python and any(
        pattern.search(frame.function) for pattern in (_OPERATOR, _BOXED_CALL, _PYTHON_KERNEL, _PYTHON_KEY, _LOOKUP)
    )


def _is_inner_boxed_call(frames: Sequence[Frame], operator: int) -> bool:
    """Return whether Python code inside the innermost named operator has called another by its handle."""
    inner = frames[:operator]
    entered = [place for place, frame in enumerate(inner) if frame.is_python]
    return bool(entered) and any(_BOXED_CALL.match(frame.function) for frame in inner[: entered[-1]])


def _boxed_call(frames: Sequence[Frame], innermost: int) -> list[int]:
    """Return the call by an operator's handle that led here: its frames do not name the operator."""
    own = [innermost]
    for place in range(innermost, len(frames)):
        if frames[place].is_python:
            break
        if _BOXED_CALL.match(frames[place].function):
            own = [place]
    return own


def _own_frames(operators: Sequence[tuple[int, re.Match[str]]]) -> list[int]:
    """Return the innermost operator's redispatches and its call, innermost first."""
    own = []
    for place, found in operators:
        if found["name"] != operators[0][1]["name"]:
            break
        own.append(place)
        if found["how"] == "call":
            break
    return own


def _describe(
    thread: Thread,
    name: str | None,
    own: Sequence[int],
    operators: Sequence[tuple[int, re.Match[str]]],
    tables: Mapping[str, Table],
) -> Place:
    frames = thread.frames
    operator = operator_name(name, tables) if name else None
    names = {place: operator_name(found["name"]) for place, found in operators}
    enclosing = [
        names.get(place, UNNAMED)
        for place in range(own[-1] + 1, len(frames))
        if place in names or _may_be_call(frames[place])
    ]
    table = tables.get(operator or "", Table())
    seen: dict[Stage, str] = {}
    for reached, function in _own_path(frames, own, named=operator is not None):
        seen.setdefault(reached, function)
    caller, words = _caller(frames[own[-1] + 1 :])
    if caller:
        seen[Stage.CALLER] = f"{caller}: {words}" if words else str(caller)
    if composite := _composite(frames[own[-1] + 1 :]):
        seen[Stage.COMPOSITE] = composite
    inner = frames[: own[0] + 1]  # what the last dispatch led to
    kernel, key = _kernel(inner)
    key = key or _key_by_table(kernel, table)
    boxed = _boxing(inner)
    wait = classify(thread)
    stage = _WAITS.get(wait.waiting) if wait else None
    deepest = max(seen, key=PATH.index)
    keys = _keys(key, table, autograd=Stage.AUTOGRAD in seen)
    return Place(
        stage=stage or deepest,
        operator=operator,
        key=key or ("Autograd" if deepest is Stage.AUTOGRAD else None),
        caller=caller,
        enclosing=_unrepeated(enclosing[::-1]),
        boxed=boxed,
        kernel=kernel,
        steps=path(seen, stage or deepest, expected(table, keys), wait_words(wait)),
    )


def _may_be_call(frame: Frame) -> bool:
    """Return whether a frame may be of an operator's call that its name does not tell."""
    return bool(_BOXED_CALL.match(frame.function)) or (not frame.is_named and "torch" in (frame.library or ""))


def _own_path(frames: Sequence[Frame], own: Sequence[int], *, named: bool) -> Iterator[tuple[Stage, str]]:
    """Yield what was reached of the innermost operator's path, with the frame that shows it."""
    yield Stage.CALL, frames[own[-1]].function
    again = False
    for place in range(own[-1], -1, -1):
        frame = frames[place]
        function = frame.function
        if place in own and place != own[-1] and named:
            again = True
            yield Stage.REDISPATCH, function
        elif frame.is_python:
            yield Stage.INSIDE, frame.words
        elif _LOOKUP.search(function):
            yield (Stage.LOOKUP_AGAIN if again else Stage.LOOKUP), function
        elif _AUTOGRAD.match(function):
            yield Stage.AUTOGRAD, function
        elif _PYTHON_KERNEL.search(function) or _PYTHON_KEY.search(function):
            yield Stage.BACKEND, function
        elif _BOXED.search(function) or _UNBOXED.search(function):
            yield (Stage.FOUND_AGAIN if again else Stage.FOUND), function
        elif _WRAPPER.search(function):
            yield Stage.BACKEND, function
        elif _CPP_KERNEL.match(function):
            yield Stage.BACKEND, function
            yield Stage.INSIDE, function


def _kernel(inner: Sequence[Frame]) -> tuple[KernelKind | None, str | None]:
    """Return language and key of the kernel that was entered last, where a frame tells."""
    for frame in inner:
        if _PYTHON_KERNEL.search(frame.function):
            entered = next((one for one in inner if one.is_python), None)
            is_meta = entered is not None and "_meta_registrations" in (entered.file or "")
            return KernelKind.PYTHON, "Meta" if is_meta else None
        if _PYTHON_KEY.search(frame.function):
            return KernelKind.PYTHON, "Python"
        if found := _WRAPPER.search(frame.function):
            return KernelKind.CPP, found["key"]
    native = any(_CPP_KERNEL.match(frame.function) for frame in inner)
    return (KernelKind.CPP if native else None), None


def _key_by_table(kernel: KernelKind | None, table: Table) -> str | None:
    """Return the key of the only kernel that Python registered, where a Python kernel was entered."""
    rows = [row.key for row in table.rows if row.kind is KernelKind.PYTHON]
    return rows[0] if kernel is KernelKind.PYTHON and len(rows) == 1 else None


def _keys(key: str | None, table: Table, *, autograd: bool) -> tuple[str, ...]:
    """Return the keys that the seen path implies, to look up what the table expects of it."""
    if key is None:
        return ()
    own = f"Autograd{key}" if table.row(f"Autograd{key}") else "AutogradOther"
    return (key, "ADInplaceOrView", own) if autograd else (key,)


def _boxing(inner: Sequence[Frame]) -> bool | None:
    for frame in inner:
        if _BOXED.search(frame.function):
            return True
        if _UNBOXED.search(frame.function):
            return False
    return None


def _composite(outer: Sequence[Frame]) -> str | None:
    """Return the composite function that called the operator: `_matmul_impl`."""
    for frame in outer:
        if frame.function.startswith("at::native::"):
            return frame.function
        if frame.is_python or _OPERATOR.match(frame.function):
            return None
    return None


def _caller(outer: Sequence[Frame]) -> tuple[Caller | None, str]:
    function = ""
    for frame in outer:
        if frame.is_python:
            compiled = _COMPILED.search(frame.file or "")
            return (Caller.COMPILED if compiled else Caller.PYTHON), frame.words
        if frame.function.startswith(_ENGINE):
            return Caller.AUTOGRAD_ENGINE, frame.function
        if frame.function.startswith("std::thread::") or frame.function in {
            "start_thread",
            "clone3",
            "__clone3",
        }:
            return Caller.CPP_THREAD, function
        if not frame.function.startswith(("at::", "c10::", "std::", "torch::")) and frame.is_named:
            function = function or frame.function
    return None, ""


def _unrepeated(names: Sequence[str]) -> tuple[str, ...]:
    """Drop repeats in a row: the call and the redispatches of one operator."""
    return tuple(name for place, name in enumerate(names) if place == 0 or names[place - 1] != name)


def wait_words(wait: Wait | None) -> str:
    """Return the function that waits."""
    return wait.frame.words if wait and wait.frame else ""
