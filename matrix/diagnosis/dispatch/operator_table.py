"""Read the table by which an environment dispatches an operator: `torch._C._dispatch_dump_table("aten::mm")`.

    Meta: registered at …/torch/_meta_registrations.py:53 [kernel]
    ADInplaceOrView: fallthrough registered at …/VariableFallbackKernel.cpp:103 [backend fallback]

Rows are in the order of their priority, lowest first. The last row whose key a call has, and that does not fall
through, is the kernel that is called.
"""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING

from matrix.model import Model

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

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
        boxed = ", boxed" if self.is_boxed else ""
        return f"{self.key}: {self.kind}{boxed}, {self.where} [{self.note}]"

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


def parse(text: str, operator: str = "") -> Table:
    """Return the table in a dump; lines that are no rows are left out."""
    rows = []
    for line in text.splitlines():
        if match := _ROW.match(line):
            is_python = match["file"].endswith(".py") or match["file"] == _NOWHERE
            row = KernelRow(
                key=match["key"],
                kind=KernelKind.PYTHON if is_python else KernelKind.CPP,
                file=match["file"],
                line=int(match["line"][:9]),
                note=match["note"] or "",
                fallthrough=bool(match["fallthrough"]),
            )
            rows.append(row)
    return Table(operator=operator, rows=tuple(rows))


def compare_tables(first: Table, second: Table) -> tuple[KernelDifference, ...]:
    """Return the keys whose kernel differs in language, source or note; line numbers change with every release."""
    keys = dict.fromkeys([row.key for row in first.rows] + [row.key for row in second.rows])
    differences = [KernelDifference(key=key, first=first.row(key), second=second.row(key)) for key in keys]
    return tuple(
        difference for difference in differences if _compared(difference.first) != _compared(difference.second)
    )


def _compared(row: KernelRow | None) -> object:
    return row and (row.kind, row.note, row.fallthrough, row.source)


def difference_lines(differences: Collection[KernelDifference]) -> Iterator[str]:
    """Yield the differences for people: one key per paragraph of two lines."""
    for difference in differences:
        yield f"{difference.key}:"
        for row in (difference.first, difference.second):
            yield f"    {row.words.partition(': ')[2] if row else 'no kernel'}"
