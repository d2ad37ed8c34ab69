"""Say where a call is from what a program wrote to stderr: a dispatch trace, or the prints of a patched PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from whichtorch.hangs.dispatch.call_path import KernelKind, Place, Stage, Table, expected, path

_TRACE = re.compile(
    r"^(?P<indent> *)\[(?P<how>call|redispatch)(?P<boxed>Boxed)?\] op=\[(?P<operator>[^\]]+)\], key=\[(?P<key>\w+)\]"
)
_HANDS_ON = ("Autograd", "ADInplaceOrView", "Tracer", "Autocast")
_KEYSET = re.compile(r"DispatchKeySet\(([^)]*)\)")
_OPERATOR = re.compile(r"\bop=(\w+::[\w.]+)")
_KEY = re.compile(r"highest priority key=(\w+)")
_UNBOXED = re.compile(r"isValidUnboxed=(\d)")


def trace_place(text: str, tables: Mapping[str, Table] | None = None) -> Place | None:
    """Return the place of the last dispatch in lines of TORCH_SHOW_DISPATCH_TRACE=1, None where there are none.

        [call] op=[aten::mm], key=[AutogradMeta]
         [redispatch] op=[aten::mm], key=[Meta]

    Release wheels leave them out (they need a debug build or -DHAS_TORCH_SHOW_DISPATCH_TRACE). A line is written before
    the kernel is called, indented by a space per level, and none when it returns.
    """
    trace = [match for line in text.splitlines() if (match := _TRACE.match(line))]
    if not trace:
        return None
    own, enclosing = _ancestors(trace)
    operator, first, last = own[-1]["operator"], own[0]["key"], own[-1]["key"]
    table = (tables or {}).get(operator, Table())
    row = table.row(last)
    stage = Stage.AUTOGRAD if last.startswith(_HANDS_ON) else Stage.BACKEND
    keys = tuple(dict.fromkeys(match["key"] for match in own))
    seen = {Stage.CALL: operator, Stage.LOOKUP: f"highest key {first}", Stage.FOUND: f"for {first}"}
    if len(own) > 1:
        seen |= {Stage.AUTOGRAD: ", ".join(match["key"] for match in own[:-1]), Stage.REDISPATCH: f"to {last}"}
        seen |= {Stage.LOOKUP_AGAIN: f"highest key {last}", Stage.FOUND_AGAIN: f"for {last}"}
    seen[stage] = f"kernel of {last} called"
    if enclosing:
        seen[Stage.COMPOSITE] = enclosing[-1]
    # A trace cut short lacks the backend key that an autograd key stands before.
    backend = [key.removeprefix("Autograd") for key in keys if key.startswith("Autograd")]
    all_keys = (*keys, *(key for key in backend if table.row(key)))
    return Place(
        stage=stage,
        operator=operator,
        key=last,
        keys=keys,
        enclosing=enclosing,
        boxed=True if own[-1]["boxed"] else row.is_boxed if row else None,
        kernel=row.kind if row and stage is Stage.BACKEND else None,
        steps=path(seen, stage, expected(table, all_keys)),
        evidence="dispatch trace",
        note="the trace has no line for a return: this is the last kernel called",
    )


def _ancestors(trace: Sequence[re.Match[str]]) -> tuple[list[re.Match[str]], tuple[str, ...]]:
    """Return the last operator's dispatches from its call on, and the operators that called it, outermost first."""
    chain = [trace[-1]]
    for match in reversed(trace[:-1]):
        if len(match["indent"]) < len(chain[-1]["indent"]):
            chain.append(match)
    chain.reverse()
    own = [chain.pop()]
    while chain and own[0]["how"] == "redispatch" and chain[-1]["operator"] == own[0]["operator"]:
        own.insert(0, chain.pop())
    return own, tuple(match["operator"] for match in chain if match["how"] == "call")


class Print(NamedTuple):
    """One expected print: what it looks like, and where a call is that wrote it and no more."""

    scope: str  # "Dispatcher::call"; "" for a print without a head
    shows: str
    stage: Stage
    meaning: str
    regex: str = ""  # what it shows, where that is not always `shows`
    optional: bool = False  # not every patched build has it: it is not missed

    @property
    def name(self) -> str:
        """The print as it is named among the missing ones."""
        return f"[DEBUG {self.scope}] {self.shows}".rstrip() if self.scope else self.shows

    @property
    def pattern(self) -> re.Pattern[str]:
        """What a line with this print matches."""
        head = rf"\[DEBUG {re.escape(self.scope)}(?: STDERR)?\]" if self.scope else ""
        return re.compile(rf"{head}.*?{self.regex or re.escape(self.shows)}")


def _lookup(stage: Stage, found: Stage, key: str, regex: str) -> tuple[Print, ...]:
    scope = "OperatorEntry::lookup"
    return (
        Print(scope, "op=", stage, "in the lookup"),
        Print(scope, f"highest priority key={key}", stage, "in the lookup", f"priority key={regex}"),
        Print(scope, "dispatch table index=", stage, "in the kernel validity check"),
        Print(scope, "kernel.isValid=", found, "a kernel was found, and not yet returned"),
        Print(scope, "Returning kernel", found, "between the lookup and the call of the kernel"),
    )


_ENTERING = "entering the dispatcher"
_BEFORE_LOOKUP = "in Dispatcher::call, before the lookup"
_IN_LOOKUP_AGAIN = "in the lookup after the redispatch"
_INVOKING = "in the invocation of the kernel"
_INVOKED = "the kernel was invoked, and its meta function never entered"
_FUNCTOR = "the kernel's functor was called, and its meta function never entered"
_WAY_BACK = "on the way back"
_NOW_CALLING = "(?:Inside NoGradGuard, calling at::mm|Now calling at::mm|CALLING at::mm NOW)"
_ABOUT_TO_CALL_BOXED = "About to call boxed_kernel_func_.callBoxed()"

_FIRST_HALF = (
    Print("_matmul_impl", "About to call at::mm", Stage.CALL, _ENTERING),
    Print("_matmul_impl", "key_set() =", Stage.CALL, _ENTERING),
    Print("_matmul_impl", "Now calling at::mm", Stage.CALL, _ENTERING, _NOW_CALLING),
    Print("Dispatcher::call", "op=", Stage.CALL, _BEFORE_LOOKUP),
    Print("Dispatcher::call", "dispatchKeySet=", Stage.CALL, _BEFORE_LOOKUP),
    Print("Dispatcher::call", "About to call lookup()", Stage.LOOKUP, "in the lookup"),
    *_lookup(Stage.LOOKUP, Stage.FOUND, "Autograd…", r"Autograd\w+"),
    Print("Dispatcher::call", "lookup() returned", Stage.FOUND, "between the lookup and the call of the kernel"),
    Print("Dispatcher::call", "About to call kernel.call", Stage.AUTOGRAD, "in the autograd kernel"),
)
_REDISPATCH = "Dispatcher::redispatchBoxed"
TABLE = (
    *_FIRST_HALF,
    Print(_REDISPATCH, "op=", Stage.REDISPATCH, "in the redispatch", optional=True),
    Print(_REDISPATCH, "About to call entry.lookup()", Stage.LOOKUP_AGAIN, _IN_LOOKUP_AGAIN, optional=True),
    *_lookup(Stage.LOOKUP_AGAIN, Stage.FOUND_AGAIN, "…", r"(?!Autograd)\w+"),
    Print("Dispatcher::callBoxed", "About to call kernel.callBoxed()", Stage.BACKEND, _INVOKING),
    Print("KernelFunction::callBoxed", _ABOUT_TO_CALL_BOXED, Stage.BACKEND, _INVOKING),
    Print("BoxedKernel::callBoxed", "About to invoke (*boxed_kernel_func_)", Stage.BACKEND, _INVOKED),
    Print("", "Calling functor operator()", Stage.BACKEND, _FUNCTOR, optional=True),
    Print("TORCH_META_FUNC(mm)", "ENTERED MM META FUNCTION", Stage.INSIDE, "inside the meta kernel"),
    Print("TORCH_META_FUNC(mm)", "self shape", Stage.INSIDE, "inside the meta kernel"),
    Print("TORCH_META_FUNC(mm)", "Meta function complete", Stage.INSIDE, "at the end of the meta kernel"),
    Print("TORCH_IMPL_FUNC(mm_out_cpu)", "", Stage.INSIDE, "inside the CPU kernel", optional=True),
    Print("BoxedKernel::callBoxed", "RETURNED", Stage.RETURNED, _WAY_BACK),
    Print("KernelFunction::callBoxed", "RETURNED", Stage.RETURNED, _WAY_BACK),
    Print("Dispatcher::callBoxed", "RETURNED", Stage.RETURNED, _WAY_BACK),
    Print("_matmul_impl", "at::mm RETURNED", Stage.RETURNED, "the call has returned"),
)
_PATTERNS = tuple(row.pattern for row in TABLE)
_MATMUL, _DISPATCHER = 0, 3  # rows of the two prints that a call may begin with
_AUTOGRAD_ONLY = range(_DISPATCHER + 4, len(_FIRST_HALF))  # not written where no autograd key is in the set


def prints_place(text: str, tables: Mapping[str, Table] | None = None) -> Place | None:
    """Return where the last call is that a patched PyTorch traced, None where no known print is in `text`.

    The environment's tables tell which kernel the prints lead to.
    """
    call = _last_call(text)
    if not call:
        return None
    last = TABLE[call[-1][0]]
    lines = [line for _, line in call]
    operator = _last(_OPERATOR, lines) or "aten::mm"
    table = (tables or {}).get(operator, Table())
    key_set = next(filter(None, map(_KEYSET.search, lines)), None)  # the one that the call began with
    keys = tuple(key.strip() for key in key_set[1].split(",") if key.strip()) if key_set else ()
    row = table.row(next((key for key in keys if not key.startswith(("Autograd", "ADInplace"))), ""))
    is_python = row is not None and row.kind is KernelKind.PYTHON
    note = f"last print: {last.name}: {last.meaning}"
    if is_python and last.stage is Stage.BACKEND:
        note += "; the environment's Meta kernel is registered from Python: the first thing it does is take the GIL"
    unboxed = _last(_UNBOXED, lines)
    seen = {TABLE[index].stage: line.partition("] ")[2].strip() or line.strip() for index, line in call}
    return Place(
        stage=last.stage,
        operator=operator,
        key=_last(_KEY, lines),
        keys=keys,
        boxed=unboxed == "0" if unboxed else None,
        kernel=row.kind if row and last.stage in {Stage.BACKEND, Stage.INSIDE, Stage.RETURNED} else None,
        steps=path(seen, last.stage, expected(table, keys)),
        evidence="debug prints",
        missing=tuple(_missing([index for index, _ in call], keys, is_python=is_python)),
        note=note,
    )


def _last_call(text: str) -> list[tuple[int, str]]:
    """Return the prints of the last call in `text`: row of the table, line."""
    call: list[tuple[int, str]] = []
    for line in text.splitlines():
        if "DEBUG" not in line and "functor" not in line:
            continue
        rows = [row for row, pattern in enumerate(_PATTERNS) if pattern.search(line)]
        last = call[-1][0] if call else -1
        begins = next((row for row in rows if row in {_MATMUL, _DISPATCHER}), None)
        if begins is not None and begins <= last:
            call = [(begins, line)]
        elif following := [(row, line) for row in rows if row > last]:
            call.append(following[0])
    return call


def _missing(printed: Sequence[int], keys: Sequence[str], *, is_python: bool) -> Iterator[str]:
    """Yield the prints that should follow the last one, then those that should have come before it."""
    for row in TABLE[printed[-1] + 1 :]:
        # A kernel that Python registered never enters the C++ meta function.
        if not (row.optional or (is_python and row.scope.startswith("TORCH_META_FUNC"))):
            yield row.name
    has_autograd = not keys or any(key.startswith("Autograd") for key in keys)
    for index in range(printed[0], printed[-1]):
        if index not in printed and not TABLE[index].optional and (has_autograd or index not in _AUTOGRAD_ONLY):
            yield TABLE[index].name


def _last(pattern: re.Pattern[str], lines: Sequence[str]) -> str | None:
    matches = [match[1] for line in lines if (match := pattern.search(line))]
    return matches[-1] if matches else None
