"""Read the table that an environment dispatches an operator by: `torch._C._dispatch_dump_table("aten::mm")`.

    Meta: registered at …/torch/_meta_registrations.py:53 [kernel]
    ADInplaceOrView: fallthrough registered at …/VariableFallbackKernel.cpp:103 [backend fallback]

Rows stand in the order of their priority, lowest first, so the last row whose key a call has, and that does not fall
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
_NOWHERE = "/dev/null"  # how torch up to 2.1 records whatever Python registered ("temporary workaround")
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
        """What is compared between environments: not where it is installed, nor how its build was split."""
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
        found = []
        for row in reversed(self.rows):
            if row.key in keys and not row.fallthrough:
                found.append(row)
                if not row.redispatches or row.note == "math kernel":
                    break
        return tuple(found)


class KernelDifference(Model):
    """A dispatch key that leads to something else in another environment; None where it has no kernel there."""

    key: str
    first: KernelRow | None
    second: KernelRow | None


def parse(text: str, operator: str = "") -> Table:
    """Return the table in a dump; lines that are no rows are passed over."""
    rows = []
    for line in text.splitlines():
        if found := _ROW.match(line):
            python = found["file"].endswith(".py") or found["file"] == _NOWHERE
            rows.append(
                KernelRow(
                    key=found["key"],
                    kind=KernelKind.PYTHON if python else KernelKind.CPP,
                    file=found["file"],
                    line=int(found["line"][:9]),
                    note=found["note"] or "",
                    fallthrough=bool(found["fallthrough"]),
                )
            )
    return Table(operator=operator, rows=tuple(rows))


def compare_tables(first: Table, second: Table) -> tuple[KernelDifference, ...]:
    """Return the keys whose kernel differs in language, source or note; line numbers change with every release."""
    keys = dict.fromkeys([row.key for row in first.rows] + [row.key for row in second.rows])
    pairs = [(key, first.row(key), second.row(key)) for key in keys]
    return tuple(KernelDifference(key=key, first=a, second=b) for key, a, b in pairs if _essence(a) != _essence(b))


def _essence(row: KernelRow | None) -> object:
    return row and (row.kind, row.note, row.fallthrough, row.source)


def difference_lines(differences: Collection[KernelDifference]) -> Iterator[str]:
    """Yield the differences for people: one key per paragraph of two lines."""
    for one in differences:
        yield f"{one.key}:"
        for row in (one.first, one.second):
            yield f"    {row.words.partition(': ')[2] if row else 'no kernel'}"
