"""Read the lines of TORCH_SHOW_DISPATCH_TRACE=1: one per dispatch, indented by a space per level.

    [call] op=[aten::mm], key=[AutogradMeta]
     [redispatch] op=[aten::mm], key=[Meta]

Release wheels leave them out (they need a debug build or -DHAS_TORCH_SHOW_DISPATCH_TRACE). A line is written before
the kernel is called, and none when it returns: the last one is the last kernel that was called, no more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from matrix.diagnosis.dispatch.call_path import Place, Stage, expected, path
from matrix.diagnosis.dispatch.operator_table import Table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EVIDENCE = "dispatch trace"
NOTE = "the trace has no line for a return: this is the last kernel called"

_LINE = re.compile(
    r"^(?P<indent> *)\[(?P<how>call|redispatch)(?P<boxed>Boxed)?\] op=\[(?P<operator>[^\]]+)\], key=\[(?P<key>\w+)\]"
)
_HANDS_ON = ("Autograd", "ADInplaceOrView", "Tracer", "Autocast")


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One line of the trace."""

    operator: str
    key: str
    depth: int
    redispatch: bool
    boxed: bool


def parse(text: str) -> tuple[Dispatch, ...]:
    """Return the dispatches in what a program wrote to stderr."""
    matches = filter(None, map(_LINE.match, text.splitlines()))
    return tuple(
        Dispatch(
            operator=match["operator"],
            key=match["key"],
            depth=len(match["indent"]),
            redispatch=match["how"] == "redispatch",
            boxed=bool(match["boxed"]),
        )
        for match in matches
    )


def place_of(trace: Sequence[Dispatch], tables: Mapping[str, Table] | None = None) -> Place | None:
    """Return the place of the last dispatch, None for an empty trace."""
    if not trace:
        return None
    last = trace[-1]
    own, enclosing = _ancestors(trace)
    table = (tables or {}).get(last.operator, Table())
    row = table.row(last.key)
    stage = Stage.AUTOGRAD if last.key.startswith(_HANDS_ON) else Stage.BACKEND
    seen = _seen(own, stage)
    if enclosing:
        seen[Stage.COMPOSITE] = enclosing[-1]
    keys = tuple(dict.fromkeys(dispatch.key for dispatch in own))
    # A trace cut short lacks the backend key that an autograd key stands before.
    backend = [key.removeprefix("Autograd") for key in keys if key.startswith("Autograd")]
    all_keys = (*keys, *(key for key in backend if table.row(key)))
    return Place(
        stage=stage,
        operator=last.operator,
        key=last.key,
        keys=keys,
        enclosing=enclosing,
        boxed=True if last.boxed else row.is_boxed if row else None,
        kernel=row.kind if row and stage is Stage.BACKEND else None,
        steps=path(seen, stage, expected(table, all_keys)),
        evidence=EVIDENCE,
        note=NOTE,
    )


def _ancestors(trace: Sequence[Dispatch]) -> tuple[list[Dispatch], tuple[str, ...]]:
    """Return the last operator's dispatches from its call on, and the operators that called it, outermost first."""
    chain = [trace[-1]]
    for dispatch in reversed(trace[:-1]):
        if dispatch.depth < chain[-1].depth:
            chain.append(dispatch)
    chain.reverse()
    own = [chain.pop()]
    while chain and own[0].redispatch and chain[-1].operator == own[0].operator:
        own.insert(0, chain.pop())
    return own, tuple(dispatch.operator for dispatch in chain if not dispatch.redispatch)


def _seen(own: Sequence[Dispatch], stage: Stage) -> dict[Stage, str]:
    first, last = own[0], own[-1]
    seen = {Stage.CALL: first.operator, Stage.LOOKUP: f"highest key {first.key}", Stage.FOUND: f"for {first.key}"}
    if len(own) > 1:
        seen[Stage.AUTOGRAD] = ", ".join(dispatch.key for dispatch in own[:-1])
        seen[Stage.REDISPATCH] = f"to {last.key}"
        seen[Stage.LOOKUP_AGAIN] = f"highest key {last.key}"
        seen[Stage.FOUND_AGAIN] = f"for {last.key}"
    seen[stage] = f"kernel of {last.key} called"
    return seen
