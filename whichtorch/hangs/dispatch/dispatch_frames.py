"""Say where in the dispatcher a thread is, from its native frames; release wheels keep the symbols that this needs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, takewhile

from whichtorch.hangs.dispatch.call_path import PATH, Caller, KernelKind, Place, Stage, Table, expected, path
from whichtorch.hangs.stacks import UNNAMED, Frame, Thread
from whichtorch.hangs.waits import classify
from whichtorch.process.evidence.waiting import Waiting

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
_CPP_KERNEL = re.compile(r"^at::(?:native|cpu|cuda|meta)::|^at::wrapper_|^structured_")
_ENGINE = "torch::autograd::Engine::"
_COMPILED = re.compile(r"torchinductor|torch/_inductor/output_code\.py|torch/_inductor/codecache\.py$")
# The first pattern that a function matches tells the stages that it shows.
_STAGES = (
    (_LOOKUP, (Stage.LOOKUP,)),
    (_AUTOGRAD, (Stage.AUTOGRAD,)),
    (_PYTHON_KERNEL, (Stage.BACKEND,)),
    (_PYTHON_KEY, (Stage.BACKEND,)),
    (_BOXED, (Stage.FOUND,)),
    (_UNBOXED, (Stage.FOUND,)),
    (_WRAPPER, (Stage.BACKEND,)),
    (_CPP_KERNEL, (Stage.BACKEND, Stage.INSIDE)),
)
_AGAIN = {Stage.LOOKUP: Stage.LOOKUP_AGAIN, Stage.FOUND: Stage.FOUND_AGAIN}  # after a redispatch


def operator_name(symbol: str, known: Iterable[str] = ()) -> str:
    """Return the operator of a name in `at::_ops`: `mm` is aten::mm, `add_Tensor` is aten::add.Tensor.

    The symbol joins name and overload by an underscore. A `known` operator with that spelling wins; else an overload
    begins with a capital letter, or is a common one.
    """
    if exact := next((name for name in known if name.partition("::")[2].replace(".", "_") == symbol), None):
        return exact
    overload = _OVERLOAD.match(symbol)
    return f"aten::{overload['name']}.{overload['overload']}" if overload else f"aten::{symbol}"


def place_of(thread: Thread, tables: Mapping[str, Table] | None = None) -> Place | None:
    """Return where in the dispatcher a thread is, None where its frames are not in it."""
    frames, tables = thread.frames, tables or {}
    innermost = next((index for index, frame in enumerate(frames) if _is_dispatch(frame)), None)
    if innermost is None:
        return None
    calls = {index: match for index, frame in enumerate(frames) if (match := _OPERATOR.match(frame.function))}
    first = next(iter(calls), None)
    if first is None or _is_inner_boxed_call(frames, first):
        operator, own = None, _boxed_call(frames, innermost)
    else:
        operator, own = operator_name(calls[first]["name"], tables), _own_frames(calls)
    outer, inner = frames[own[-1] + 1 :], frames[: own[0] + 1]  # who called it, and what its last dispatch led to
    # A call by a handle, or a function of torch without a name, may be the call of an operator that is not named.
    enclosing = [
        operator_name(calls[index]["name"]) if index in calls else UNNAMED
        for index, frame in enumerate(outer, own[-1] + 1)
        if index in calls
        or _BOXED_CALL.match(frame.function)
        or (not frame.is_named and "torch" in (frame.library or ""))
    ]
    seen: dict[Stage, str] = {}
    for reached, function in _own_path(frames, own, is_named=operator is not None):
        seen.setdefault(reached, function)
    caller, words = _caller(outer)
    if caller:
        seen[Stage.CALLER] = f"{caller}: {words}" if words else str(caller)
    if composite := _composite(outer):
        seen[Stage.COMPOSITE] = composite
    table = tables.get(operator or "", Table())
    kernel, key = _kernel(inner, table)
    wait, deepest = classify(thread), max(seen, key=PATH.index)
    stage = (_WAITS.get(wait.waiting) if wait else None) or deepest
    keys = _keys(key, table, has_autograd=Stage.AUTOGRAD in seen)
    return Place(
        stage=stage,
        operator=operator,
        key=key or ("Autograd" if deepest is Stage.AUTOGRAD else None),
        caller=caller,
        # The call and the redispatches of one operator are one.
        enclosing=tuple(name for name, _ in groupby(reversed(enclosing))),
        boxed=_is_boxed(inner),
        kernel=kernel,
        steps=path(seen, stage, expected(table, keys), wait.frame.words if wait and wait.frame else ""),
    )


def _is_dispatch(frame: Frame) -> bool:
    patterns = (_OPERATOR, _BOXED_CALL, _PYTHON_KERNEL, _PYTHON_KEY, _LOOKUP)
    return not frame.is_python and any(pattern.search(frame.function) for pattern in patterns)


def _is_inner_boxed_call(frames: Sequence[Frame], operator: int) -> bool:
    """Return whether Python code inside the innermost named operator has called another by its handle."""
    entered = [index for index, frame in enumerate(frames[:operator]) if frame.is_python]
    return bool(entered) and any(_BOXED_CALL.match(frame.function) for frame in frames[: entered[-1]])


def _boxed_call(frames: Sequence[Frame], innermost: int) -> list[int]:
    """Return the index of the call by an operator's handle that led here; its frames do not name the operator."""
    native = takewhile(lambda index: not frames[index].is_python, range(innermost, len(frames)))
    return [index for index in native if _BOXED_CALL.match(frames[index].function)][-1:] or [innermost]


def _own_frames(calls: Mapping[int, re.Match[str]]) -> list[int]:
    """Return the indexes of the innermost operator's redispatches and its call, innermost first."""
    _, group = next(groupby(calls, key=lambda index: calls[index]["name"]))
    indexes = list(group)
    call = next((position for position, index in enumerate(indexes) if calls[index]["how"] == "call"), len(indexes))
    return indexes[: call + 1]


def _own_path(frames: Sequence[Frame], own: Sequence[int], *, is_named: bool) -> Iterator[tuple[Stage, str]]:
    """Yield the stages that the innermost operator reached, each with the frame that shows it."""
    yield Stage.CALL, frames[own[-1]].function
    is_again = False
    for index in range(own[-1], -1, -1):
        frame = frames[index]
        if index in own and index != own[-1] and is_named:
            is_again = True
            yield Stage.REDISPATCH, frame.function
        elif frame.is_python:
            yield Stage.INSIDE, frame.words
        else:
            for stage in next((stages for pattern, stages in _STAGES if pattern.search(frame.function)), ()):
                yield (_AGAIN.get(stage, stage) if is_again else stage), frame.function


def _kernel(inner: Sequence[Frame], table: Table) -> tuple[KernelKind | None, str | None]:
    """Return language and key of the kernel that was entered last, where a frame or the table tells."""
    python_keys = [row.key for row in table.rows if row.kind is KernelKind.PYTHON]
    for frame in inner:
        if _PYTHON_KERNEL.search(frame.function):
            entered = next((frame for frame in inner if frame.is_python), None)
            is_meta = entered is not None and "_meta_registrations" in (entered.file or "")
            only_key = python_keys[0] if len(python_keys) == 1 else None
            return KernelKind.PYTHON, "Meta" if is_meta else only_key
        if _PYTHON_KEY.search(frame.function):
            return KernelKind.PYTHON, "Python"
        if wrapper := _WRAPPER.search(frame.function):
            return KernelKind.CPP, wrapper["key"]
    is_native = any(_CPP_KERNEL.match(frame.function) for frame in inner)
    return (KernelKind.CPP if is_native else None), None


def _keys(key: str | None, table: Table, *, has_autograd: bool) -> tuple[str, ...]:
    """Return the keys that the seen path implies, to look up what the table expects of it."""
    if key is None:
        return ()
    autograd = f"Autograd{key}" if table.row(f"Autograd{key}") else "AutogradOther"
    return (key, "ADInplaceOrView", autograd) if has_autograd else (key,)


def _is_boxed(inner: Sequence[Frame]) -> bool | None:
    for frame in inner:
        is_boxed = bool(_BOXED.search(frame.function))
        if is_boxed or _UNBOXED.search(frame.function):
            return is_boxed
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
