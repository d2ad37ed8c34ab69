"""The dispatcher's call path: one vocabulary for where a call is, for every kind of evidence.

The evidence is native frames (`dispatch_frames`), TORCH_SHOW_DISPATCH_TRACE lines (`dispatch_trace`) or the prints of
a patched build (`debug_prints`). The expected path comes from the environment's own table of the operator.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from matrix.diagnosis.dispatch.operator_table import KernelKind, Table
from matrix.model import Model

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Stage(StrEnum):
    """The parts of the path of one operator call, in order; a wait may happen at any of them."""

    CALLER = "called from"
    COMPOSITE = "composite operator"
    CALL = "operator call"
    LOOKUP = "lookup"
    FOUND = "kernel found"
    AUTOGRAD = "autograd kernel"
    REDISPATCH = "redispatch"
    LOOKUP_AGAIN = "lookup after redispatch"
    FOUND_AGAIN = "kernel found after redispatch"
    BACKEND = "backend kernel"
    INSIDE = "inside the kernel"
    WAITING_GIL = "waiting for the GIL"
    WAITING_LOCK = "waiting for a lock"
    WAITING_CONDITION = "waiting for a condition"
    WAITING_THREAD = "waiting for a thread"
    WAITING_CHILD = "waiting for a child"
    WAITING_OPENMP = "waiting for OpenMP"
    WAITING_IO = "waiting for I/O"
    WAITING_DEVICE = "waiting for the GPU"
    RETURNED = "returned"

    @property
    def is_wait(self) -> bool:
        """True for a wait, which may happen anywhere on the path."""
        return self.value.startswith("waiting")


class Status(StrEnum):
    """How far a call got."""

    REACHED = "reached"
    STUCK = "stuck here"
    NEVER = "never reached"


class Caller(StrEnum):
    """Who called the operator."""

    PYTHON = "Python call"
    CPP_THREAD = "C++ thread"
    AUTOGRAD_ENGINE = "autograd engine"
    COMPILED = "compiled code"


class CallStep(Model):
    """One stage of the path."""

    stage: Stage
    status: Status
    seen: str = ""
    expected: str = ""  # by the environment's table


class Place(Model):
    """Where a call is."""

    stage: Stage
    operator: str | None = None  # "aten::add.Tensor"
    key: str | None = None  # of the kernel it is in, or that was looked up last
    keys: tuple[str, ...] = ()  # the key set, where the evidence has it
    caller: Caller | None = None
    enclosing: tuple[str, ...] = ()  # operators that called this one, outermost first; "???" for one without a name
    boxed: bool | None = None
    kernel: KernelKind | None = None
    steps: tuple[CallStep, ...] = ()
    evidence: str = "native frames"
    missing: tuple[str, ...] = ()  # expected prints that did not come
    note: str = ""

    @property
    def words(self) -> str:
        """The place in a developer's words: `boxed kernel, Python-registered Meta kernel of aten::mm, …`."""
        parts = []
        reached = {step.stage for step in self.steps if step.status is not Status.NEVER}
        of = f" of {self.operator}" if self.operator else ""
        if self.boxed is not None and reached & {Stage.FOUND, Stage.FOUND_AGAIN, Stage.BACKEND}:
            parts.append("boxed kernel" if self.boxed else "unboxed kernel")
        if Stage.BACKEND in reached:
            language = "Python-registered " if self.kernel is KernelKind.PYTHON else ""
            language = "C++ " if self.kernel is KernelKind.CPP else language
            if self.key == "Python":  # a mode's or a tensor subclass's __torch_dispatch__
                parts.append(f"kernel of the Python key{of}")
            else:
                parts.append(f"{language}{self.key + ' ' if self.key else ''}kernel{of}")
        elif Stage.AUTOGRAD in reached and self.stage is not Stage.AUTOGRAD:
            parts.append(f"autograd kernel{of}")
        if self.stage is not Stage.BACKEND:
            parts.append(str(self.stage) + ("" if of and of in "".join(parts) else of))
        return ", ".join(parts)


PATH = tuple(stage for stage in Stage if not stage.is_wait)
ALWAYS = {Stage.CALL, Stage.LOOKUP, Stage.FOUND, Stage.BACKEND, Stage.INSIDE, Stage.RETURNED}
_AGAIN = {Stage.REDISPATCH, Stage.LOOKUP_AGAIN, Stage.FOUND_AGAIN}


def expected(table: Table, keys: Sequence[str]) -> dict[Stage, str]:
    """Return what the environment's table says of a call with these keys."""
    rows = table.called(keys)
    if not rows:
        return {}
    boxing = ["boxed" if row.is_boxed else "unboxed" for row in rows]
    wanted = {Stage.FOUND: f"{boxing[0]}, for {rows[0].key}", Stage.BACKEND: rows[-1].words}
    if len(rows) > 1:
        wanted[Stage.AUTOGRAD] = rows[0].words
        wanted[Stage.REDISPATCH] = f"to {rows[-1].key}"
        wanted[Stage.LOOKUP_AGAIN] = f"of {rows[-1].key}"
        wanted[Stage.FOUND_AGAIN] = f"{boxing[-1]}, for {rows[-1].key}"
    if rows[-1].kind is KernelKind.PYTHON:
        wanted[Stage.INSIDE] = "Python code, with the GIL"
    return wanted


def path(
    seen: Mapping[Stage, str], stuck: Stage, wanted: Mapping[Stage, str], waits_in: str = ""
) -> tuple[CallStep, ...]:
    """Return the steps of the seen path beside the expected one; all stages before a reached one were reached too."""
    deepest = max((PATH.index(stage) for stage in seen), default=-1)
    if not stuck.is_wait:
        deepest = max(deepest, PATH.index(stuck))
    steps = []
    for index, stage in enumerate(PATH):
        is_again = stage in _AGAIN and bool(_AGAIN & {*seen, *wanted, stuck})
        if not (stage in ALWAYS or is_again or stage in seen or stage in wanted or stage is stuck):
            continue
        status = Status.NEVER if index > deepest else Status.REACHED
        if stage is stuck and index == deepest:
            status = Status.STUCK
        steps.append(CallStep(stage=stage, status=status, seen=seen.get(stage, ""), expected=wanted.get(stage, "")))
        if stuck.is_wait and index == deepest:
            steps.append(CallStep(stage=stuck, status=Status.STUCK, seen=waits_in))
    return tuple(steps)
