"""Say where in the dispatcher a thread is, from its native frames; release wheels keep the symbols that this needs."""

from __future__ import annotations

import re
from itertools import groupby, takewhile
from typing import TYPE_CHECKING

from matrix.diagnosis.dispatch.call_path import PATH, Caller, Place, Stage, expected, path
from matrix.diagnosis.dispatch.operator_table import KernelKind, Table
from matrix.diagnosis.hang.waits import classify
from matrix.diagnosis.symbols import UNNAMED
from matrix.model import Waiting

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

    The symbol joins name and overload by an underscore. A `known` operator with that spelling wins; else an overload
    begins with a capital letter, or is a common one.
    """
    exact = next((name for name in known if name.partition("::")[2].replace(".", "_") == symbol), None)
    if exact:
        return exact
    overload = _OVERLOAD.match(symbol)
    return f"aten::{overload['name']}.{overload['overload']}" if overload else f"aten::{symbol}"


def place_of(thread: Thread, tables: Mapping[str, Table] | None = None) -> Place | None:
    """Return where in the dispatcher a thread is, None where its frames are not in it."""
    frames = thread.frames
    innermost = next((index for index, frame in enumerate(frames) if _is_dispatch(frame)), None)
    if innermost is None:
        return None
    matches = {index: match for index, frame in enumerate(frames) if (match := _OPERATOR.match(frame.function))}
    first = next(iter(matches), None)
    name = None if first is None or _is_inner_boxed_call(frames, first) else matches[first]["name"]
    own = _own_frames(matches, name) if name else _boxed_call(frames, innermost)
    return _describe(thread, name, own, matches, tables or {})


def _is_dispatch(frame: Frame) -> bool:
    patterns = (_OPERATOR, _BOXED_CALL, _PYTHON_KERNEL, _PYTHON_KEY, _LOOKUP)
    return not frame.is_python and any(pattern.search(frame.function) for pattern in patterns)


def _is_inner_boxed_call(frames: Sequence[Frame], operator: int) -> bool:
    """Return whether Python code inside the innermost named operator has called another by its handle."""
    inner = frames[:operator]
    entered = [index for index, frame in enumerate(inner) if frame.is_python]
    return bool(entered) and any(_BOXED_CALL.match(frame.function) for frame in inner[: entered[-1]])


def _boxed_call(frames: Sequence[Frame], innermost: int) -> list[int]:
    """Return the index of the call by an operator's handle that led here; its frames do not name the operator."""
    native = takewhile(lambda index: not frames[index].is_python, range(innermost, len(frames)))
    return [index for index in native if _BOXED_CALL.match(frames[index].function)][-1:] or [innermost]


def _own_frames(matches: Mapping[int, re.Match[str]], name: str) -> list[int]:
    """Return the indexes of the innermost operator's redispatches and its call, innermost first."""
    own = []
    for index, match in matches.items():
        if match["name"] != name:
            break
        own.append(index)
        if match["how"] == "call":
            break
    return own


def _describe(
    thread: Thread,
    name: str | None,
    own: Sequence[int],
    matches: Mapping[int, re.Match[str]],
    tables: Mapping[str, Table],
) -> Place:
    """Return the place of a call. `own` are the indexes of its frames; `matches` those of all operators by index."""
    frames, outer = thread.frames, thread.frames[own[-1] + 1 :]
    operator = operator_name(name, tables) if name else None
    enclosing = [
        operator_name(matches[index]["name"]) if index in matches else UNNAMED
        for index in range(own[-1] + 1, len(frames))
        if index in matches or _may_be_call(frames[index])
    ]
    table = tables.get(operator or "", Table())
    seen: dict[Stage, str] = {}
    for reached, function in _own_path(frames, own, is_named=operator is not None):
        seen.setdefault(reached, function)
    caller, words = _caller(outer)
    if caller:
        seen[Stage.CALLER] = f"{caller}: {words}" if words else str(caller)
    if composite := _composite(outer):
        seen[Stage.COMPOSITE] = composite
    inner = frames[: own[0] + 1]  # what the last dispatch led to
    kernel, key = _kernel(inner)
    key = key or _key_by_table(kernel, table)
    wait = classify(thread)
    deepest = max(seen, key=PATH.index)
    stage = (_WAITS.get(wait.waiting) if wait else None) or deepest
    keys = _keys(key, table, has_autograd=Stage.AUTOGRAD in seen)
    waiting_frame = wait.frame.words if wait and wait.frame else ""
    return Place(
        stage=stage,
        operator=operator,
        key=key or ("Autograd" if deepest is Stage.AUTOGRAD else None),
        caller=caller,
        # The call and the redispatches of one operator are one.
        enclosing=tuple(name for name, _ in groupby(reversed(enclosing))),
        boxed=_is_boxed(inner),
        kernel=kernel,
        steps=path(seen, stage, expected(table, keys), waiting_frame),
    )


def _may_be_call(frame: Frame) -> bool:
    """Return whether a frame may belong to an operator's call that its name does not tell."""
    return bool(_BOXED_CALL.match(frame.function)) or (not frame.is_named and "torch" in (frame.library or ""))


def _own_path(frames: Sequence[Frame], own: Sequence[int], *, is_named: bool) -> Iterator[tuple[Stage, str]]:
    """Yield the stages that the innermost operator reached, each with the frame that shows it."""
    yield Stage.CALL, frames[own[-1]].function
    is_again = False
    for index in range(own[-1], -1, -1):
        frame = frames[index]
        function = frame.function
        if index in own and index != own[-1] and is_named:
            is_again = True
            yield Stage.REDISPATCH, function
        elif frame.is_python:
            yield Stage.INSIDE, frame.words
        elif _LOOKUP.search(function):
            yield (Stage.LOOKUP_AGAIN if is_again else Stage.LOOKUP), function
        elif _AUTOGRAD.match(function):
            yield Stage.AUTOGRAD, function
        elif _PYTHON_KERNEL.search(function) or _PYTHON_KEY.search(function):
            yield Stage.BACKEND, function
        elif _BOXED.search(function) or _UNBOXED.search(function):
            yield (Stage.FOUND_AGAIN if is_again else Stage.FOUND), function
        elif _WRAPPER.search(function):
            yield Stage.BACKEND, function
        elif _CPP_KERNEL.match(function):
            yield Stage.BACKEND, function
            yield Stage.INSIDE, function


def _kernel(inner: Sequence[Frame]) -> tuple[KernelKind | None, str | None]:
    """Return language and key of the kernel that was entered last, where a frame tells."""
    for frame in inner:
        if _PYTHON_KERNEL.search(frame.function):
            entered = next((frame for frame in inner if frame.is_python), None)
            is_meta = entered is not None and "_meta_registrations" in (entered.file or "")
            return KernelKind.PYTHON, "Meta" if is_meta else None
        if _PYTHON_KEY.search(frame.function):
            return KernelKind.PYTHON, "Python"
        if wrapper := _WRAPPER.search(frame.function):
            return KernelKind.CPP, wrapper["key"]
    is_native = any(_CPP_KERNEL.match(frame.function) for frame in inner)
    return (KernelKind.CPP if is_native else None), None


def _key_by_table(kernel: KernelKind | None, table: Table) -> str | None:
    """Return the key of the only kernel that Python registered, where a Python kernel was entered."""
    keys = [row.key for row in table.rows if row.kind is KernelKind.PYTHON]
    return keys[0] if kernel is KernelKind.PYTHON and len(keys) == 1 else None


def _keys(key: str | None, table: Table, *, has_autograd: bool) -> tuple[str, ...]:
    """Return the keys that the seen path implies, to look up what the table expects of it."""
    if key is None:
        return ()
    autograd = f"Autograd{key}" if table.row(f"Autograd{key}") else "AutogradOther"
    return (key, "ADInplaceOrView", autograd) if has_autograd else (key,)


def _is_boxed(inner: Sequence[Frame]) -> bool | None:
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
            is_compiled = _COMPILED.search(frame.file or "")
            return (Caller.COMPILED if is_compiled else Caller.PYTHON), frame.words
        if frame.function.startswith(_ENGINE):
            return Caller.AUTOGRAD_ENGINE, frame.function
        if frame.function.startswith("std::thread::") or frame.function in {"start_thread", "clone3", "__clone3"}:
            return Caller.CPP_THREAD, function
        if not frame.function.startswith(("at::", "c10::", "std::", "torch::")) and frame.is_named:
            function = function or frame.function
    return None, ""
