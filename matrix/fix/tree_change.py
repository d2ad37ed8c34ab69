"""All that differs between two trees, each file read when it is first asked for, and what its modules bind."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache, cached_property
from typing import TYPE_CHECKING

from matrix.fix.names import bound, dotted, parameters
from matrix.fix.units import ChangedFile, Kind, Proposal, Unit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from matrix.fix.package_trees import FilePair

_WORD = re.compile(r"[A-Za-z_]\w*")
Function = ast.FunctionDef | ast.AsyncFunctionDef


class TreeChange:
    """The files that differ. `scope` are those whose units may be named by a word alone: what the script loads."""

    def __init__(self, pairs: Mapping[str, FilePair], paths: Collection[str], scope: Collection[str]) -> None:
        self._pairs = pairs
        self._paths = frozenset(paths)  # of both trees, files that are the same included
        self._scope = sorted(path for path in scope if path in pairs)
        self._files: dict[str, ChangedFile | None] = {}

    def file(self, path: str) -> ChangedFile | None:
        """Return a file that differs; None for another, for one that is gone or that cannot be read."""
        if path not in self._files:
            pair = self._pairs.get(path)
            try:
                self._files[path] = ChangedFile(pair) if pair and pair.good is not None else None
            except (SyntaxError, ValueError, RecursionError):
                self._files[path] = None
        return self._files[path]

    @property
    def scope(self) -> Iterator[ChangedFile]:
        """The files that the script loads."""
        return filter(None, map(self.file, self._scope))

    @cached_property
    def scoped_units(self) -> tuple[Unit, ...]:
        """The units of the files that the script loads."""
        return tuple(unit for file in self.scope for unit in file.units)

    def texts(self, proposal: Proposal) -> dict[str, str]:
        """Return the texts of all files that a proposal changes, by path."""
        files = {path: self.file(path) for path in sorted({unit.path for unit in proposal.units})}
        return {path: file.text(proposal.units, proposal.drafts) for path, file in files.items() if file is not None}

    def module_path(self, module: str) -> str | None:
        """Return the file of a module of either release: "torch.fx" -> "torch/fx/__init__.py"."""
        stem = module.replace(".", "/")
        return next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in self._paths), None)

    @cache  # noqa: B019 - lives as long as the search
    def bad_names(self, path: str) -> frozenset[str]:
        """Return what a file that differs binds in the bad release."""
        file = self.file(path)
        return frozenset(bound(node for part in file.bad_parts for node in part.nodes)) if file else frozenset()

    @cache  # noqa: B019
    def _binders(self, path: str) -> Mapping[str, tuple[Unit, ...]]:
        binders: dict[str, list[Unit]] = defaultdict(list)
        file = self.file(path)
        for unit in file.units if file else ():
            for name in bound(unit.nodes) if not unit.owner else ():
                binders[name].append(unit)
        return {name: tuple(units) for name, units in binders.items()}

    def binders(self, path: str, name: str) -> tuple[Unit, ...]:
        """Return the units of a file that bind a name of its module."""
        return self._binders(path).get(name, ())

    def named(self, path: str, name: str) -> Unit | None:
        """Return a file's unit by its qualified name."""
        file = self.file(path)
        return next((unit for unit in file.units if unit.name == name), None) if file else None

    def good_class(self, path: str, name: str) -> ast.ClassDef | None:
        """Return a class of the good release's module."""
        file = self.file(path)
        nodes = (node for part in (file.good_parts if file else ()) for node in part.nodes)
        return next((node for node in nodes if isinstance(node, ast.ClassDef) and node.name == name), None)

    @cached_property
    def _bad_words(self) -> frozenset[str]:
        return frozenset(word for file in self.scope for word in _WORD.findall(file.bad_text or ""))

    @cached_property
    def _bringers(self) -> Mapping[str, tuple[Unit, ...]]:
        """Units by the words that they bring and that the bad release has in no file of the scope."""
        found: dict[str, list[Unit]] = defaultdict(list)
        for unit in self.scoped_units:
            if unit.good is not None:
                for word in set(_WORD.findall(unit.good.whole)) - self._bad_words:
                    found[word].append(unit)
        return {word: tuple(units) for word, units in found.items()}

    def introducers(self, word: str) -> tuple[Unit, ...]:
        """Return the units that define a word which the bad release nowhere has."""
        return tuple(unit for unit in self._bringers.get(word, ()) if word in _defined(unit))

    @cached_property
    def _by_last_name(self) -> Mapping[str, tuple[Unit, ...]]:
        found: dict[str, list[Unit]] = defaultdict(list)
        for unit in self.scoped_units:
            found[unit.own_name].append(unit)
        return {name: tuple(units) for name, units in found.items()}

    def called(self, name: str) -> tuple[Unit, ...]:
        """Return the units of the scope whose own name is this one, whatever class or module they stand in."""
        return self._by_last_name.get(name, ())


def new_parameters(unit: Unit) -> set[str]:
    """Return the parameters that a changed function has in the good release only."""
    if unit.kind is Kind.REMOVED or unit.bad is None:
        return set()
    return _parameter_names(unit.nodes) - _parameter_names(unit.bad.nodes)


def _parameter_names(nodes: tuple[ast.stmt, ...]) -> set[str]:
    return {argument.arg for node in nodes if isinstance(node, Function) for argument in parameters(node)}


def _defined(unit: Unit) -> set[str]:
    """Return all words that a unit defines: definitions, parameters, and what is assigned to names and attributes."""
    words = set()
    for node in (inner for top in unit.nodes for inner in ast.walk(top)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                words.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                words.add(name)
    return words


def module_of(path: str) -> str:
    """Return the dotted name of a file's module."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def absolute(path: str, level: int, module: str) -> str:
    """Return the module that an import statement in a file means."""
    if level == 0:
        return module
    here = module_of(path).split(".")
    kept = len(here) - level + path.endswith("/__init__.py")
    return ".".join([*here[:kept], *([module] if module else [])])


def imported(nodes: Collection[ast.AST], path: str) -> dict[str, str]:
    """Return what names the import statements among nodes bind, as dotted paths: {"nn": "torch.nn"}."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = (
                    alias.name if alias.asname else alias.name.partition(".")[0]
                )
        elif isinstance(node, ast.ImportFrom):
            module = absolute(path, node.level, node.module or "")
            found |= {alias.asname or alias.name: f"{module}.{alias.name}" for alias in node.names}
    return found


def base_names(node: ast.ClassDef) -> list[str]:
    """Return the dotted names of a class's bases."""
    return [name for base in node.bases if (name := dotted(base))]
