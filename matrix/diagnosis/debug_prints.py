"""Read the `[DEBUG …]` prints of a PyTorch patched to trace `at::mm`: which came last, and which are missing.

The table holds them in the order in which a call that ends well writes them; those of a build that prints only
some are passed over. Each says what a hang after it means.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.diagnosis.dispatch import Place, Stage, expected, path
from matrix.diagnosis.dispatch_table import KernelKind, Table

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


def _print(scope: str, text: str, stage: Stage, meaning: str, *, optional: bool = False) -> Print:
    pattern = re.compile(rf"\[DEBUG {re.escape(scope)}[^\]]*\].*?{text}")
    name = f"[DEBUG {scope}] " + re.sub(r"\\(.)", r"\1", text).replace("[^ ]*", "").strip()
    return Print(name=name, pattern=pattern, stage=stage, meaning=meaning, optional=optional)


def _lookup(stage: Stage, found: Stage, key: str) -> tuple[Print, ...]:
    scope = "OperatorEntry::lookup"
    return (
        _print(scope, "op=", stage, "in the lookup"),
        _print(scope, rf"highest priority key={key}", stage, "in the lookup"),
        _print(scope, "dispatch table index=", stage, "in the kernel validity check"),
        _print(scope, r"kernel\.isValid=", found, "a kernel was found, and not yet returned"),
        _print(scope, "Returning kernel", found, "between the lookup and the call of the kernel"),
    )


AUTOGRAD_KEY, BACKEND_KEY = r"Autograd\w+", r"(?!Autograd)\w+"

TABLE: tuple[Print, ...] = (
    _print("_matmul_impl", "About to call at::mm", Stage.CALL, "entering the dispatcher"),
    _print("_matmul_impl", r"key_set\(\) =", Stage.CALL, "entering the dispatcher"),
    _print(
        "_matmul_impl",
        r"(?:Inside NoGradGuard, calling at::mm|Now calling at::mm|CALLING at::mm NOW)",
        Stage.CALL,
        "entering the dispatcher",
    ),
    _print("Dispatcher::call]"[:-1], "op=", Stage.CALL, "in Dispatcher::call, before the lookup"),
    _print("Dispatcher::call", "dispatchKeySet=", Stage.CALL, "in Dispatcher::call, before the lookup"),
    _print("Dispatcher::call", r"About to call lookup\(\)", Stage.LOOKUP, "in the lookup"),
    *_lookup(Stage.LOOKUP, Stage.FOUND, AUTOGRAD_KEY),
    _print(
        "Dispatcher::call",
        r"lookup\(\) returned",
        Stage.FOUND,
        "between the lookup and the call of the kernel",
    ),
    _print("Dispatcher::call", r"About to call kernel\.call", Stage.AUTOGRAD, "in the autograd kernel"),
    _print("Dispatcher::redispatchBoxed", "op=", Stage.REDISPATCH, "in the redispatch", optional=True),
    _print(
        "Dispatcher::redispatchBoxed",
        r"About to call entry\.lookup\(\)",
        Stage.LOOKUP_AGAIN,
        "in the lookup after the redispatch",
        optional=True,
    ),
    *_lookup(Stage.LOOKUP_AGAIN, Stage.FOUND_AGAIN, BACKEND_KEY),
    _print(
        "Dispatcher::callBoxed",
        r"About to call kernel\.callBoxed\(\)",
        Stage.BACKEND,
        "in the invocation of the kernel",
    ),
    _print(
        "KernelFunction::callBoxed",
        r"About to call boxed_kernel_func_\.callBoxed\(\)",
        Stage.BACKEND,
        "in the invocation of the kernel",
    ),
    _print(
        "BoxedKernel::callBoxed",
        r"About to invoke \(\*boxed_kernel_func_\)",
        Stage.BACKEND,
        "the kernel was invoked, and its meta function never entered",
    ),
    _print(
        "",
        r"Calling functor operator\(\)",
        Stage.BACKEND,
        "the kernel's functor was called, and its meta function never entered",
        optional=True,
    ),
    _print("TORCH_META_FUNC(mm)", "ENTERED MM META FUNCTION", Stage.INSIDE, "inside the meta kernel"),
    _print("TORCH_META_FUNC(mm)", "self shape", Stage.INSIDE, "inside the meta kernel"),
    _print(
        "TORCH_META_FUNC(mm)",
        "Meta function complete",
        Stage.INSIDE,
        "the meta kernel is done, and has not returned",
    ),
    _print("TORCH_IMPL_FUNC(mm_out_cpu)", "", Stage.INSIDE, "inside the CPU kernel", optional=True),
    _print("BoxedKernel::callBoxed", r"RETURNED", Stage.RETURNED, "on the way back"),
    _print("KernelFunction::callBoxed", r"RETURNED", Stage.RETURNED, "on the way back"),
    _print("Dispatcher::callBoxed", r"RETURNED", Stage.RETURNED, "on the way back"),
    _print("_matmul_impl", r"at::mm RETURNED", Stage.RETURNED, "the call has returned"),
)
_META_PRINTS = "TORCH_META_FUNC"
_BEGIN = (0, 3)  # prints of the table that a new call starts with


def last_call(text: str) -> list[tuple[int, str]]:
    """Return the prints of the last call in `text`: place in the table, line."""
    found: list[tuple[int, str]] = []
    for line in text.splitlines():
        if "DEBUG" not in line:
            continue
        at = found[-1][0] if found else -1
        following = next(
            (place for place in range(at + 1, len(TABLE)) if TABLE[place].pattern.search(line)), None
        )
        if following is not None and not (following in _BEGIN and at >= _BEGIN[1]):
            found.append((following, line))
        elif any(TABLE[place].pattern.search(line) for place in _BEGIN):
            again = next(place for place in _BEGIN if TABLE[place].pattern.search(line))
            # Dispatcher::call within _matmul_impl's own print is the same call, not a new one.
            found = [(again, line)]
    return found


def place_of(text: str, tables: Mapping[str, Table] | None = None) -> Place | None:
    """Return where the last traced call is, None where no known print is in `text`."""
    found = last_call(text)
    if not found:
        return None
    last, seen_places = TABLE[found[-1][0]], {place for place, _ in found}
    lines = [line for _, line in found]
    operator = _last(_OPERATOR, lines) or "aten::mm"
    table = (tables or {}).get(operator, Table())
    keys = _keys(lines)
    row = table.row(_backend(keys) or "")
    is_python = row is not None and row.kind is KernelKind.PYTHON
    missing = [one for place, one in enumerate(TABLE) if place > found[-1][0] and not one.optional]
    # A kernel that Python registered never enters the C++ meta function: its prints are not to come.
    wanted = [
        one.name for one in missing if not (is_python and one.name.startswith(f"[DEBUG {_META_PRINTS}"))
    ]
    wanted += [
        one.name
        for place, one in enumerate(TABLE[: found[-1][0]])
        if not one.optional and place not in seen_places
    ]
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
