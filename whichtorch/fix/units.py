"""A file's two texts -> units, the smallest changes that are tried, and a set of units -> the file's text.

A text is read as parts: the definitions and statements of a body, each with the comments above it. The texts of all
parts, one after another, are the file's text: nothing is lost or reformatted. A unit is a part that differs, by its
qualified name, not a hunk of a diff: what a release changed in one function may be many hunks, none of which works
alone. An import is a unit per imported name, and is never removed.
"""

from __future__ import annotations

import ast
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any

from whichtorch.base.grouping import reached
from whichtorch.source.names import absolute, aliases, bound, dotted, import_statements, imported
from whichtorch.source.syntax import Definition, Function, parse_module

LINE = re.compile(r"[^\n]*\n|[^\n]+")  # as `ast` counts them: str.splitlines knows more line ends
NAME_LENGTH = 60  # characters of a statement that has no name of its own
TREES_KEPT = 2000  # of parts, about 20 kB each; all trees of two releases would take over a gigabyte


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A definition or a statement, with the comments and empty lines above it."""

    name: str  # unique in its body
    text: str  # of a class: of its head alone, up to the colon
    first: int  # first line of the text in its module, from 1
    body: tuple[Part, ...] = ()  # of a class
    is_import: bool = False
    is_head: bool = False  # of a class, without its body

    @property
    def nodes(self) -> tuple[ast.stmt, ...]:
        """The statements: several where they share a line, none in what follows the last statement.

        They are parsed again whenever they have not been used for a while; their lines count from the text's begin.
        """
        return _statements(self.text, is_head=True) if self.is_head else _statements(self.whole)

    @property
    def last(self) -> int:
        """Line of the text's end."""
        return self.first + self.text.count("\n") - self.text.endswith("\n")

    @property
    def whole(self) -> str:
        """The text with that of its body."""
        return self.text + "".join(part.whole for part in self.body)


def parts_of(text: str, tree: ast.Module | None = None) -> tuple[Part, ...]:
    """Return the parts of a module, from its first line to its last. Raises SyntaxError."""
    lines = LINE.findall(text)
    parts = list(_parts((tree or parse_module(text)).body, lines, 0))
    if rest := text[sum(len(part.whole) for part in parts) :]:
        parts.append(Part(name="end of file", text=rest, first=len(lines) - rest.count("\n") + 1))
    return unique(parts)


@lru_cache(maxsize=TREES_KEPT)
def _statements(text: str, *, is_head: bool = False) -> tuple[ast.stmt, ...]:
    if not is_head:
        return tuple(statements_of(text))
    first = next(line for line in text.splitlines() if line.strip() and not line.strip().startswith("#"))
    indent = first[: len(first) - len(first.lstrip())]
    (head,) = statements_of(f"{text.rstrip()}\n{indent} pass\n")
    assert isinstance(head, ast.ClassDef)
    return (head,)  # with a body of `pass`: without one it would be no text of Python


def statements_of(text: str) -> list[ast.stmt]:
    """Return the statements of a part's text, with its lines, that of a method as if it stood alone.

    Raises SyntaxError.
    """
    first = next((line for line in text.splitlines() if line.strip() and not line.strip().startswith("#")), "")
    if first == first.lstrip():
        return parse_module(text).body
    (owner,) = ast.increment_lineno(parse_module("class _:\n" + text + "\n"), -1).body
    assert isinstance(owner, ast.ClassDef)
    return owner.body


def _parts(body: Sequence[ast.stmt], lines: Sequence[str], start: int) -> Iterator[Part]:
    """Yield the parts of a body whose first line has the index `start`."""
    position = 0
    while position < len(body):
        nodes = [body[position]]
        while position + len(nodes) < len(body) and body[position + len(nodes)].lineno == nodes[-1].end_lineno:
            nodes.append(body[position + len(nodes)])
        position += len(nodes)
        end = nodes[-1].end_lineno or 0
        node = nodes[0]
        if isinstance(node, ast.ClassDef) and len(nodes) == 1 and (head := _head_end(node, lines)):
            yield Part(
                name=node.name,
                text="".join(lines[start:head]),
                first=start + 1,
                body=unique(tuple(_parts(node.body, lines, head))),
            )
        else:
            is_import = all(isinstance(each, ast.Import | ast.ImportFrom) for each in nodes)
            yield Part(name=_name(node), text="".join(lines[start:end]), first=start + 1, is_import=is_import)
        start = end


def _head_end(node: ast.ClassDef, lines: Sequence[str]) -> int:
    """Return how many lines there are up to the colon of a class; 0 where its body follows on the same line."""
    first = node.body[0]
    decorators = getattr(first, "decorator_list", [])
    end = min([first.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while end >= node.lineno and (not (line := lines[end - 1].strip()) or line.startswith("#")):
        end -= 1
    return end if end >= node.lineno else 0


def unique(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return parts with names of their own: those that share one are told apart by decorators, then numbered."""
    shared = Counter(part.name for part in parts)
    named = [replace(part, name=_decorated(part)) if shared[part.name] > 1 else part for part in parts]
    seen: Counter[str] = Counter()
    numbered = []
    for part in named:
        seen[part.name] += 1
        number = seen[part.name]
        numbered.append(replace(part, name=f"{part.name} #{number}") if number > 1 else part)
    return tuple(numbered)


def _decorated(part: Part) -> str:
    """Return a name with the first decorator that tells it from others: "size@size.setter"."""
    node = part.nodes[0] if part.nodes else None
    decorators = node.decorator_list if isinstance(node, Definition) else []
    return f"{part.name}@{_short(decorators[0])}" if decorators else part.name


def _short(node: ast.AST) -> str:
    return _shortened(" ".join(ast.unparse(node).split()))


def _shortened(words: str) -> str:
    return words if len(words) <= NAME_LENGTH else f"{words[:NAME_LENGTH]}…"


def _name(node: ast.stmt) -> str:
    """Return what a statement is called, so that it is found again in another release."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return node.name
        case ast.Assign():
            return ", ".join(map(_short, node.targets))
        case ast.AnnAssign():
            return _short(node.target)
        case ast.AugAssign():
            return f"{_short(node.target)} +="
        case ast.Import():
            return f"import {node.names[0].name}"
        case ast.ImportFrom():
            return f"from {'.' * node.level}{node.module or ''}"
        case ast.Expr(value=ast.Constant(value=str())):
            return "docstring"
        case ast.Expr(value=ast.Call(func=function, args=args)):
            return f"{_short(function)}({_short(args[0]) if args else ''})"
        case ast.Try():
            return f"try {_short(node.body[0])}"
        case _:  # its first line, without the colon
            return _shortened(ast.unparse(node).partition("\n")[0].removesuffix(":"))


_UNMEANT = {"annotation", "returns", "type_comment", "kind", "type_params"}  # fields that no run looks at, as a rule
_TYPE_MAKERS = {"TypeVar", "ParamSpec", "NewType"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePair:
    """A file that differs: its text in the bad and in the good release."""

    path: str
    bad: str | None  # None where it is not there
    good: str | None


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
        self.path, self.bad_text = pair.path, pair.bad
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
                yield TextSlot(good=part.whole, unit=moved.get(part.name) or self._unit(owner, Kind.ADDED, None, part))
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
            heads = [replace(part, body=(), is_head=True) for part in (bad, good)]
            unit = None if bad.text == good.text else self._unit(owner, Kind.CHANGED, *heads)
            yield TextSlot(bad=bad.text, good=good.text, unit=unit)
            yield from self._merged(bad.body, good.body, _joined(owner, good.name))
        else:
            yield TextSlot(bad=bad.whole, good=good.whole, unit=self._unit(owner, Kind.CHANGED, bad, good))

    def _unit(self, owner: str, kind: Kind, bad: Part | None, good: Part | None) -> Unit:
        part = good or bad
        assert part is not None
        return Unit(path=self.path, name=_joined(owner, part.name), kind=kind, bad=bad, good=good, owner=owner)


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
