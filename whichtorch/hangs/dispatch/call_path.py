"""The dispatcher's call path: one vocabulary for where a call is, and the table that says where it should go.

The evidence is native frames (`dispatch_frames`), or what the program wrote (`written_calls`). The expected path comes
from the environment's own table of the operator, `torch._C._dispatch_dump_table("aten::mm")`:

    Meta: registered at …/torch/_meta_registrations.py:53 [kernel]
    ADInplaceOrView: fallthrough registered at …/VariableFallbackKernel.cpp:103 [backend fallback]

Rows are in the order of their priority, lowest first. The last row whose key a call has, and that does not fall
through, is the kernel that is called.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from enum import StrEnum
from pathlib import PurePath

from whichtorch.model import Model

_ROW = re.compile(
    r"^(?P<key>\w+): (?P<fallthrough>fallthrough )?registered at (?P<file>.*):(?P<line>\d+)"
    r"(?: \[(?P<note>[^\]]*)\])?\s*$"
)
_NOWHERE = "/dev/null"  # how torch up to 2.1 records what Python registered ("temporary workaround")
_SHARD = re.compile(r"_\d+(?=\.\w+$)")  # generated sources are split differently in each release


class KernelKind(StrEnum):
    """What a kernel is written in."""

    PYTHON = "Python"
    CPP = "C++"


class KernelRow(Model):
    """Which kernel one dispatch key leads to."""

    key: str
    kind: KernelKind
    file: str
    line: int
    note: str = ""  # kernel, autograd kernel, math kernel, default backend kernel, backend fallback, batched kernel
    fallthrough: bool = False

    @property
    def is_boxed(self) -> bool:
        """True where the kernel takes a stack of IValues only, as all registered from Python and all fallbacks do."""
        return self.kind is KernelKind.PYTHON or self.note == "backend fallback"

    @property
    def redispatches(self) -> bool:
        """True where the kernel does its part and hands the call on to the next key."""
        return self.note == "autograd kernel" or self.key.startswith(("Autograd", "Autocast", "Tracer", "ADInplace"))

    @property
    def where(self) -> str:
        """File and line, without the folders."""
        return f"{PurePath(self.file).name}:{self.line}" if self.file != _NOWHERE else "a Python library"

    @property
    def words(self) -> str:
        """The row as a developer says it: `Meta: Python, boxed, _meta_registrations.py:53 [kernel]`."""
        if self.fallthrough:
            return f"{self.key}: falls through"
        return f"{self.key}: {self.kind}{', boxed' if self.is_boxed else ''}, {self.where} [{self.note}]"

    @property
    def source(self) -> str:
        """The source as it is compared between environments: without folders, and without shards of a build."""
        return str(self.kind) if self.kind is KernelKind.PYTHON else _SHARD.sub("", PurePath(self.file).name)


class Table(Model):
    """All rows of an operator, lowest priority first."""

    operator: str = ""
    rows: tuple[KernelRow, ...] = ()

    def row(self, key: str) -> KernelRow | None:
        """Return the row of a dispatch key."""
        return next((row for row in self.rows if row.key == key), None)

    def called(self, keys: Collection[str]) -> tuple[KernelRow, ...]:
        """Return the kernels that a call with these keys goes through, in turn: each but the last hands it on."""
        called = []
        for row in reversed(self.rows):
            if row.key in keys and not row.fallthrough:
                called.append(row)
                if not row.redispatches or row.note == "math kernel":
                    break
        return tuple(called)


class KernelDifference(Model):
    """A dispatch key that leads to something else in another environment; None where it has no kernel there."""

    key: str
    first: KernelRow | None
    second: KernelRow | None


def parse_table(text: str, operator: str = "") -> Table:
    """Return the table in a dump; lines that are no rows are left out."""
    rows = tuple(
        KernelRow(
            key=match["key"],
            kind=KernelKind.PYTHON if match["file"].endswith((".py", _NOWHERE)) else KernelKind.CPP,
            file=match["file"],
            line=int(match["line"][:9]),
            note=match["note"] or "",
            fallthrough=bool(match["fallthrough"]),
        )
        for match in filter(None, map(_ROW.match, text.splitlines()))
    )
    return Table(operator=operator, rows=rows)


def compare_tables(first: Table, second: Table) -> tuple[KernelDifference, ...]:
    """Return the keys whose kernel differs in language, source or note; line numbers change with every release."""
    keys = dict.fromkeys(row.key for row in (*first.rows, *second.rows))
    pairs = {key: (first.row(key), second.row(key)) for key in keys}
    return tuple(
        KernelDifference(key=key, first=row, second=other)
        for key, (row, other) in pairs.items()
        if _compared(row) != _compared(other)
    )


def _compared(row: KernelRow | None) -> object:
    return row and (row.kind, row.note, row.fallthrough, row.source)


def difference_lines(differences: Collection[KernelDifference]) -> Iterator[str]:
    """Yield the differences for people: one key per paragraph of two lines."""
    for difference in differences:
        yield f"{difference.key}:"
        for row in (difference.first, difference.second):
            yield f"    {row.words.partition(': ')[2] if row else 'no kernel'}"


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
        if Stage.BACKEND in reached and self.key == "Python":  # a mode's or a tensor subclass's __torch_dispatch__
            parts.append(f"kernel of the Python key{of}")
        elif Stage.BACKEND in reached:
            language = {KernelKind.PYTHON: "Python-registered ", KernelKind.CPP: "C++ ", None: ""}[self.kernel]
            parts.append(f"{language}{self.key + ' ' if self.key else ''}kernel{of}")
        elif Stage.AUTOGRAD in reached and self.stage is not Stage.AUTOGRAD:
            parts.append(f"autograd kernel{of}")
        if self.stage is not Stage.BACKEND:
            parts.append(str(self.stage) + ("" if of and of in "".join(parts) else of))
        return ", ".join(parts)


PATH = tuple(stage for stage in Stage if not stage.startswith("waiting"))
_ALWAYS = {Stage.CALL, Stage.LOOKUP, Stage.FOUND, Stage.BACKEND, Stage.INSIDE, Stage.RETURNED}
_AGAIN = {Stage.REDISPATCH, Stage.LOOKUP_AGAIN, Stage.FOUND_AGAIN}


def expected(table: Table, keys: Collection[str]) -> dict[Stage, str]:
    """Return what the environment's table says of a call with these keys."""
    rows = table.called(keys)
    if not rows:
        return {}
    first, last = rows[0], rows[-1]
    found, found_last = (f"{'boxed' if row.is_boxed else 'unboxed'}, for {row.key}" for row in (first, last))
    wanted = {Stage.FOUND: found, Stage.BACKEND: last.words}
    if len(rows) > 1:
        wanted |= {Stage.AUTOGRAD: first.words, Stage.REDISPATCH: f"to {last.key}"}
        wanted |= {Stage.LOOKUP_AGAIN: f"of {last.key}", Stage.FOUND_AGAIN: found_last}
    if last.kind is KernelKind.PYTHON:
        wanted[Stage.INSIDE] = "Python code, with the GIL"
    return wanted


def path(
    seen: Mapping[Stage, str], stuck: Stage, wanted: Mapping[Stage, str], waits_in: str = ""
) -> tuple[CallStep, ...]:
    """Return the steps of the seen path beside the expected one; all stages before a reached one were reached too."""
    deepest = max((PATH.index(stage) for stage in (*seen, stuck) if stage in PATH), default=-1)
    shown = {*_ALWAYS, *seen, *wanted, stuck}
    shown |= _AGAIN if _AGAIN & shown else set()
    steps = []
    for index, stage in enumerate(PATH):
        if stage in shown:
            status = Status.REACHED if index <= deepest else Status.NEVER
            if stage is stuck and index == deepest:
                status = Status.STUCK
            steps.append(CallStep(stage=stage, status=status, seen=seen.get(stage, ""), expected=wanted.get(stage, "")))
        if stuck not in PATH and index == deepest:
            steps.append(CallStep(stage=stuck, status=Status.STUCK, seen=waits_in))
    return tuple(steps)
