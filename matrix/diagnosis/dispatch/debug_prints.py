"""Read the `[DEBUG …]` prints of a PyTorch patched to trace `at::mm`: which came last, and which are missing.

The table holds them in the order in which a call that ends well writes them; those of a build that prints only
some are passed over. Each says what a hang after it means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.diagnosis.dispatch.call_path import Place, Stage, expected, path
from matrix.diagnosis.dispatch.operator_table import KernelKind, Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EVIDENCE = "debug prints"
_KEYSET = re.compile(r"DispatchKeySet\(([^)]*)\)")
_OPERATOR = re.compile(r"\bop=(\w+::[\w.]+)")
_KEY = re.compile(r"highest priority key=(\w+)")
_UNBOXED = re.compile(r"isValidUnboxed=(\d)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Print:
    """One expected print: what it looks like, and where a call is that wrote it and no more."""

    name: str
    pattern: re.Pattern[str]
    stage: Stage
    meaning: str
    optional: bool = False  # not every patched build has it: it is not missed


def _print(scope: str, shows: str, stage: Stage, meaning: str, *, pattern: str = "", optional: bool = False) -> Print:
    return Print(
        name=f"[DEBUG {scope}] {shows}".rstrip() if scope else shows,
        pattern=re.compile(rf"{_head(scope)}.*?{pattern or re.escape(shows)}"),
        stage=stage,
        meaning=meaning,
        optional=optional,
    )


def _head(scope: str) -> str:
    return rf"\[DEBUG {re.escape(scope)}(?: STDERR)?\]" if scope else ""


def _lookup(stage: Stage, found: Stage, key: str, pattern: str) -> tuple[Print, ...]:
    scope = "OperatorEntry::lookup"
    return (
        _print(scope, "op=", stage, "in the lookup"),
        _print(scope, f"highest priority key={key}", stage, "in the lookup", pattern=f"priority key={pattern}"),
        _print(scope, "dispatch table index=", stage, "in the kernel validity check"),
        _print(scope, "kernel.isValid=", found, "a kernel was found, and not yet returned"),
        _print(scope, "Returning kernel", found, "between the lookup and the call of the kernel"),
    )


_ENTERING = "entering the dispatcher"
_BEFORE_LOOKUP = "in Dispatcher::call, before the lookup"
_INVOKING = "in the invocation of the kernel"
_WAY_BACK = "on the way back"

_FIRST_HALF: tuple[Print, ...] = (
    _print("_matmul_impl", "About to call at::mm", Stage.CALL, _ENTERING),
    _print("_matmul_impl", "key_set() =", Stage.CALL, _ENTERING),
    _print(
        "_matmul_impl",
        "Now calling at::mm",
        Stage.CALL,
        _ENTERING,
        pattern="(?:Inside NoGradGuard, calling at::mm|Now calling at::mm|CALLING at::mm NOW)",
    ),
    _print("Dispatcher::call", "op=", Stage.CALL, _BEFORE_LOOKUP),
    _print("Dispatcher::call", "dispatchKeySet=", Stage.CALL, _BEFORE_LOOKUP),
    _print("Dispatcher::call", "About to call lookup()", Stage.LOOKUP, "in the lookup"),
    *_lookup(Stage.LOOKUP, Stage.FOUND, "Autograd…", r"Autograd\w+"),
    _print("Dispatcher::call", "lookup() returned", Stage.FOUND, "between the lookup and the call of the kernel"),
    _print("Dispatcher::call", "About to call kernel.call", Stage.AUTOGRAD, "in the autograd kernel"),
)
_SECOND_HALF: tuple[Print, ...] = (
    _print("Dispatcher::redispatchBoxed", "op=", Stage.REDISPATCH, "in the redispatch", optional=True),
    _print(
        "Dispatcher::redispatchBoxed",
        "About to call entry.lookup()",
        Stage.LOOKUP_AGAIN,
        "in the lookup after the redispatch",
        optional=True,
    ),
    *_lookup(Stage.LOOKUP_AGAIN, Stage.FOUND_AGAIN, "…", r"(?!Autograd)\w+"),
    _print("Dispatcher::callBoxed", "About to call kernel.callBoxed()", Stage.BACKEND, _INVOKING),
    _print("KernelFunction::callBoxed", "About to call boxed_kernel_func_.callBoxed()", Stage.BACKEND, _INVOKING),
    _print(
        "BoxedKernel::callBoxed",
        "About to invoke (*boxed_kernel_func_)",
        Stage.BACKEND,
        "the kernel was invoked, and its meta function never entered",
    ),
    _print(
        "",
        "Calling functor operator()",
        Stage.BACKEND,
        "the kernel's functor was called, and its meta function never entered",
        optional=True,
    ),
    _print("TORCH_META_FUNC(mm)", "ENTERED MM META FUNCTION", Stage.INSIDE, "inside the meta kernel"),
    _print("TORCH_META_FUNC(mm)", "self shape", Stage.INSIDE, "inside the meta kernel"),
    _print("TORCH_META_FUNC(mm)", "Meta function complete", Stage.INSIDE, "at the end of the meta kernel"),
    _print("TORCH_IMPL_FUNC(mm_out_cpu)", "", Stage.INSIDE, "inside the CPU kernel", optional=True),
    _print("BoxedKernel::callBoxed", "RETURNED", Stage.RETURNED, _WAY_BACK),
    _print("KernelFunction::callBoxed", "RETURNED", Stage.RETURNED, _WAY_BACK),
    _print("Dispatcher::callBoxed", "RETURNED", Stage.RETURNED, _WAY_BACK),
    _print("_matmul_impl", "at::mm RETURNED", Stage.RETURNED, "the call has returned"),
)
TABLE = _FIRST_HALF + _SECOND_HALF
_META_PRINTS = "TORCH_META_FUNC"
_MATMUL, _DISPATCHER = 0, 3  # places in the table of the two prints that a call may begin with
_AUTOGRAD_ONLY = range(_DISPATCHER + 4, len(_FIRST_HALF))  # not written where no autograd key is in the set


def last_call(text: str) -> list[tuple[int, str]]:
    """Return the prints of the last call in `text`: place in the table, line."""
    found: list[tuple[int, str]] = []
    for line in text.splitlines():
        if "DEBUG" not in line and "functor" not in line:
            continue
        matches = [place for place, one in enumerate(TABLE) if one.pattern.search(line)]
        begins = [place for place in matches if place in {_MATMUL, _DISPATCHER}]
        at = found[-1][0] if found else -1
        following = next((place for place in matches if place > at), None)
        if begins and begins[0] <= at:
            found = [(begins[0], line)]  # a new call
        elif following is not None:
            found.append((following, line))
    return found


def place_of(text: str, tables: Mapping[str, Table] | None = None) -> Place | None:
    """Return where the last traced call is, None where no known print is in `text`."""
    found = last_call(text)
    if not found:
        return None
    last = TABLE[found[-1][0]]
    lines = [line for _, line in found]
    operator = _last(_OPERATOR, lines) or "aten::mm"
    table = (tables or {}).get(operator, Table())
    keys = _keys(lines)
    row = table.row(_backend(keys) or "")
    is_python = row is not None and row.kind is KernelKind.PYTHON
    missing = [one for place, one in enumerate(TABLE) if place > found[-1][0] and not one.optional]
    # A kernel that Python registered never enters the C++ meta function: its prints are not to come.
    wanted = [one.name for one in missing if not (is_python and one.name.startswith(f"[DEBUG {_META_PRINTS}"))]
    wanted += _skipped(found, keys)
    key = _last(_KEY, lines)
    unboxed = _last(_UNBOXED, lines)
    return Place(
        stage=last.stage,
        operator=operator,
        key=key,
        keys=keys,
        boxed=unboxed == "0" if unboxed else None,
        kernel=row.kind if row and _reached(last.stage, Stage.BACKEND) else None,
        steps=path(_seen(found), last.stage, expected(table, keys)),
        evidence=EVIDENCE,
        missing=tuple(wanted),
        note=_note(last, is_python=is_python),
    )


def _skipped(found: Sequence[tuple[int, str]], keys: Sequence[str]) -> list[str]:
    """Return the prints that should have come before the last one, from the first one on."""
    came = {place for place, _ in found}
    not_due = set() if not keys or any(key.startswith("Autograd") for key in keys) else set(_AUTOGRAD_ONLY)
    due = set(range(found[0][0], found[-1][0])) - came - not_due
    return [TABLE[place].name for place in sorted(due) if not TABLE[place].optional]


def _note(last: Print, *, is_python: bool) -> str:
    note = f"last print: {last.name}: {last.meaning}"
    if is_python and last.stage is Stage.BACKEND:
        note += "; the environment's Meta kernel is registered from Python: the first thing it does is take the GIL"
    return note


def _reached(stage: Stage, other: Stage) -> bool:
    order = list(Stage)
    return order.index(stage) >= order.index(other)


def _seen(found: Sequence[tuple[int, str]]) -> dict[Stage, str]:
    """Return the last print of each stage."""
    return {TABLE[place].stage: line.partition("] ")[2].strip() or line.strip() for place, line in found}


def _keys(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the key set that the call began with."""
    for line in lines:
        if found := _KEYSET.search(line):
            return tuple(key.strip() for key in found[1].split(",") if key.strip())
    return ()


def _backend(keys: Sequence[str]) -> str | None:
    return next((key for key in keys if not key.startswith(("Autograd", "ADInplace"))), None)


def _last(pattern: re.Pattern[str], lines: Sequence[str]) -> str | None:
    matches = [found[1] for line in lines if (found := pattern.search(line))]
    return matches[-1] if matches else None
