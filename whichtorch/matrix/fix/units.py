"""A file's two texts -> units, the smallest changes that are tried, and a set of units -> the file's text.

A unit is a definition or a statement by its qualified name, not a hunk of a diff: what a release changed in one
function may be many hunks, none of which works alone. An import is a unit per imported name, and is never removed.
"""

from __future__ import annotations

import ast
from bisect import bisect_left
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

from whichtorch.matrix.fix.parts import Part, parts_of
from whichtorch.matrix.grouping import reached
from whichtorch.matrix.source.names import absolute, aliases, bound, dotted, import_statements, imported
from whichtorch.matrix.source.syntax import Definition, Function, parse_module

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from whichtorch.matrix.fix.package_trees import FilePair

_UNMEANT = {"annotation", "returns", "type_comment", "kind", "type_params"}  # fields that no run looks at, as a rule
_TYPE_MAKERS = {"TypeVar", "ParamSpec", "NewType"}


class Kind(StrEnum):
    """What a unit does to the bad release."""

    ADDED = "added"
    CHANGED = "changed"
    MOVED = "moved"  # to another place of the same body, and maybe changed
    REMOVED = "removed"


@dataclass(frozen=True, kw_only=True, eq=False)
class Unit:
    """One change that is tried or left out as a whole."""

    path: str
    name: str  # qualified: "FakeTensor._find_common_device", "import math", "specialize_float"
    kind: Kind
    bad: Part | None = None  # with the text that it replaces
    good: Part | None = None
    owner: str = ""  # class that it stands in

    def __str__(self) -> str:
        """Return what people call it."""
        return f"{self.path}: {self.name} ({self.kind})"

    @property
    def before(self) -> str:
        """The text that it replaces."""
        return self.bad.whole if self.bad else ""

    @property
    def after(self) -> str:
        """The text that it brings."""
        return self.good.whole if self.good else ""

    @property
    def nodes(self) -> tuple[ast.stmt, ...]:
        """What it brings into the bad release."""
        return self.good.nodes if self.good else ()

    @cached_property
    def cosmetic(self) -> bool:
        """True for comments, docstrings, annotations or formatting only: as a rule, no run can tell the difference."""
        if all(_is_for_readers(part) for part in (self.bad, self.good) if part):
            return True
        return self.bad is not None and self.good is not None and means_the_same(self.bad.nodes, self.good.nodes)

    @property
    def own_name(self) -> str:
        """The name without what it stands in, and without what tells it from others of that name."""
        return self.name.rpartition(".")[2].partition("@")[0].partition(" #")[0]

    @property
    def is_function(self) -> bool:
        """True where it brings one function."""
        return len(self.nodes) == 1 and isinstance(self.nodes[0], Function)


def in_order(units: Iterable[Unit]) -> list[Unit]:
    """Return units by file and name."""
    return sorted(units, key=lambda unit: (unit.path, unit.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """What one run tries: units, some of them with a text of their own."""

    units: frozenset[Unit]
    drafts: Mapping[Unit, str] = field(default_factory=dict)  # in place of what the good release has

    def text(self, unit: Unit) -> str:
        """Return the text that a unit brings."""
        return self.drafts.get(unit, unit.after)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextSlot:
    """A place of a file: what stands there without and with its unit."""

    bad: str = ""
    good: str = ""
    unit: Unit | None = None  # None: the same in both

    def text(self, chosen: Collection[Unit], drafts: Mapping[Unit, str]) -> str:
        """Return what stands there with some units chosen."""
        if self.unit is None or self.unit not in chosen:
            return self.bad
        return drafts.get(self.unit, self.good) if self.good else ""


class ChangedFile:
    """A file that differs, as slots in the order of both releases. Raises SyntaxError where it cannot be read."""

    def __init__(self, pair: FilePair) -> None:
        self.path, self.bad_text, self.good_text = pair.path, pair.bad, pair.good
        bad, good = parse_module(pair.bad or ""), parse_module(pair.good or "")
        self.bad_parts, self.good_parts = parts_of(pair.bad or "", bad), parts_of(pair.good or "", good)
        self.bad_names = frozenset(bound(bad.body))
        self.good_meanings = imported(good.body, self.path)  # what the good module's imports bind, as dotted paths
        self.good_aliases = aliases(good.body)
        stars = (node for node in good.body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*")
        self.good_stars = tuple(absolute(self.path, node.level, node.module or "") for node in stars)  # modules
        self._bad_imports, self._good_imports = _imports(self.bad_parts), _imports(self.good_parts)
        self.slots = tuple(self._merged(self.bad_parts, self.good_parts, ""))

    @cached_property
    def units(self) -> tuple[Unit, ...]:
        """The file's units, each once, in the order of its text."""
        return tuple(dict.fromkeys(slot.unit for slot in self.slots if slot.unit is not None))

    def text(self, chosen: Collection[Unit], drafts: Mapping[Unit, str] | None = None) -> str:
        """Return the bad release's text with the units that are chosen, and others' left as they are.

        A draft is a text of its own that stands for a chosen unit's.
        """
        drafts = drafts or {}
        return "".join(slot.text(chosen, drafts) for slot in self.slots)

    def _merged(self, bad: Sequence[Part], good: Sequence[Part], owner: str) -> Iterator[TextSlot]:
        """Yield the slots of a body: all of the good one's order, and what only the bad one has in between."""
        before, after = {part.name: part for part in bad}, {part.name: part for part in good}
        kept = _longest_common([part.name for part in bad], [part.name for part in good])
        moved = {
            name: self._unit(owner, Kind.MOVED, part, after[name])
            for name, part in before.items()
            if name in after and name not in kept
        }
        left = iter(bad)
        for part in good:
            if part.name in kept:
                for old in iter(left.__next__, before[part.name]):
                    yield from self._leaving(old, moved.get(old.name), owner)
                next_import = part.is_import and not owner
                yield from self._leaving(before[part.name], None, owner) if next_import else ()
                yield from self._new_names(part) if next_import else self._matched(before[part.name], part, owner)
            elif part.is_import and not owner:
                yield from self._new_names(part)
            else:
                unit = moved.get(part.name) or self._unit(owner, Kind.ADDED, None, part)
                yield TextSlot(good=part.whole, unit=unit)
        for old in left:
            yield from self._leaving(old, moved.get(old.name), owner)

    def _leaving(self, part: Part, moved: Unit | None, owner: str) -> Iterator[TextSlot]:
        """Yield the slots of a part that the good release does not have there; an import stays."""
        if not part.is_import or owner:
            yield TextSlot(bad=part.whole, unit=moved or self._unit(owner, Kind.REMOVED, part, None))
            return
        yield TextSlot(bad=part.text, good=part.text)
        for name in _imports([part]):  # one that now comes from elsewhere has the last word
            if self._good_imports.get(name, self._bad_imports[name]) != self._bad_imports[name]:
                yield self._import_slot(name, Kind.CHANGED)

    def _new_names(self, part: Part) -> Iterator[TextSlot]:
        for name in _imports([part]):
            if name not in self._bad_imports:
                yield self._import_slot(name, Kind.ADDED)

    def _import_slot(self, name: str, kind: Kind) -> TextSlot:
        text = self._good_imports[name]
        part = Part(name=f"import {name}", text=text, first=0, is_import=True)
        return TextSlot(good=text, unit=self._unit("", kind, None, part))

    def _matched(self, bad: Part, good: Part, owner: str) -> Iterator[TextSlot]:
        """Yield the slots of a part that both releases have at the same place."""
        if bad.whole == good.whole:
            yield TextSlot(bad=bad.whole, good=good.whole)
        elif bad.body and good.body:
            same = bad.text == good.text
            heads = [replace(part, body=(), is_head=True) for part in (bad, good)]
            unit = None if same else self._unit(owner, Kind.CHANGED, *heads)
            yield TextSlot(bad=bad.text, good=good.text, unit=unit)
            yield from self._merged(bad.body, good.body, _joined(owner, good.name))
        else:
            yield TextSlot(bad=bad.whole, good=good.whole, unit=self._unit(owner, Kind.CHANGED, bad, good))

    def _unit(self, owner: str, kind: Kind, bad: Part | None, good: Part | None) -> Unit:
        part = good or bad
        assert part is not None
        name = _joined(owner, part.name)
        return Unit(path=self.path, name=name, kind=kind, bad=bad, good=good, owner=owner)


def _joined(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner else name


def _imports(parts: Iterable[Part]) -> dict[str, str]:
    """Return what imports bind, and a statement for each: {"nn": "from torch import nn"}; "import a.b" binds "a.b"."""
    nodes = [node for part in parts if part.is_import for node in part.nodes]
    return {
        text.replace("import *", "*") if alias.name == "*" else alias.asname or alias.name: f"{text}\n"
        for text, alias in import_statements(nodes)
    }


def _longest_common(bad: Sequence[str], good: Sequence[str]) -> frozenset[str]:
    """Return the longest list of names that both have in the same order; names are unique in each."""
    place = {name: index for index, name in enumerate(good)}
    ends: list[str] = []  # by length: the name with the least place that ends such an increasing run
    before: dict[str, str] = {}
    for name in filter(place.__contains__, bad):
        length = bisect_left(ends, place[name], key=place.__getitem__)
        ends[length : length + 1] = [name]
        before |= {name: ends[length - 1]} if length else {}
    return frozenset(reached(ends[-1:], lambda name: filter(None, [before.get(name)])))


def means_the_same(first: object, second: object) -> bool:
    """Return whether two trees are alike but for places, annotations and docstrings."""
    if type(first) is not type(second):
        return False
    if isinstance(first, ast.AST):
        return all(
            means_the_same(_field(first, name), _field(second, name)) for name in first._fields if name not in _UNMEANT
        )
    if isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)):
        return len(first) == len(second) and all(map(means_the_same, first, second))
    return first == second


def _field(node: object, name: str) -> object:
    value: Any = getattr(node, name, None)
    is_documented = name == "body" and isinstance(node, Definition) and ast.get_docstring(node) is not None
    return value[1:] if is_documented else value


def _is_for_readers(part: Part) -> bool:
    """Return whether a part is there for readers and type checkers only."""
    return part.name in {"docstring", "if TYPE_CHECKING"} or all(map(_is_hint, part.nodes))


def _is_hint(node: ast.stmt) -> bool:
    """Return whether only annotations use what a statement defines, or it is an overload."""
    if isinstance(node, Function):
        return any(dotted(decorator).rpartition(".")[2] == "overload" for decorator in node.decorator_list)
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and dotted(value.func).rpartition(".")[2] in _TYPE_MAKERS
