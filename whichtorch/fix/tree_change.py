"""Two installed wheels -> what differs between them, each file read when it is first asked for, and as a patch."""

from __future__ import annotations

import ast
import base64
import csv
import difflib
import hashlib
import io
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from whichtorch.base.errors import PreventedError
from whichtorch.base.grouping import reached
from whichtorch.environments.overlay import read_source
from whichtorch.fix.functions_run import words_of
from whichtorch.fix.units import LINE, ChangedFile, FilePair, Kind, Proposal, Unit
from whichtorch.source.names import bound, dotted, parameters, uses
from whichtorch.source.syntax import Function

PACKAGES = ("torch", "torchgen", "functorch")  # that a wheel of torch installs


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageTree:
    """The Python files that an installed wheel of torch brought, by their paths in its site-packages."""

    root: Path  # site-packages
    digests: Mapping[str, str]  # path -> the content's digest, as RECORD has it

    def text(self, path: str) -> str | None:
        """Return a file's exact text, line ends and all; None for a file that is not the wheel's."""
        return read_source(self.root / path) if path in self.digests else None


def package_tree(root: Path) -> PackageTree:
    """Read what the wheel of torch in `root` lists. Raises PreventedError where it lists nothing."""
    records = sorted(root.glob("torch-*.dist-info/RECORD"))
    if not records:
        raise PreventedError(f"{root} has no RECORD of an installed wheel of torch")
    rows = csv.reader(io.StringIO(records[0].read_text(encoding="utf-8"), newline=""))
    listed = {row[0]: row[1] for row in rows if len(row) > 1 and _is_ours(row[0])}
    return PackageTree(root=root, digests={path: value or _digest(root / path) for path, value in listed.items()})


def differing(bad: PackageTree, good: PackageTree) -> dict[str, FilePair]:
    """Return the files that differ, by path, in the order of their paths."""
    return {
        path: FilePair(path=path, bad=bad.text(path), good=good.text(path))
        for path in sorted(bad.digests.keys() | good.digests.keys())
        if bad.digests.get(path) != good.digests.get(path)
    }


def _is_ours(path: str) -> bool:
    return path.endswith(".py") and path.partition("/")[0] in PACKAGES


def _digest(file: Path) -> str:
    """Return a file's digest in RECORD's form, for what is listed without one."""
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(file.read_bytes()).digest()).decode().rstrip("=")


def unified_diff(bad: Mapping[str, str | None], changed: Mapping[str, str]) -> str:
    """Return the diff of files, by their paths from site-packages on; a text before is None for a new file."""
    return "".join(line for path in sorted(changed) for line in _file_diff(path, bad.get(path), changed[path]))


def _file_diff(path: str, bad: str | None, changed: str) -> Iterator[str]:
    old = f"a/{path}" if bad is not None else "/dev/null"
    for line in difflib.unified_diff(LINE.findall(bad or ""), LINE.findall(changed), old, f"b/{path}"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def lines_of(patch: str) -> int:
    """Return how many lines a patch adds or removes."""
    return sum(line.startswith(("+", "-")) and not line.startswith(("+++ ", "--- ")) for line in patch.splitlines())


_ASSIGNMENT = re.compile(r"^[A-Za-z_]\w* *(?::[^=\n]*)?=[^=].*$", re.MULTILINE)


class TreeChange:
    """The files that differ, and the paths of both trees. Reading all of them would take longer than many runs."""

    def __init__(self, pairs: Mapping[str, FilePair], paths: Collection[str]) -> None:
        self.pairs = {path: pair for path, pair in pairs.items() if pair.good is not None}
        self._paths = frozenset(paths)  # files that are the same included
        self._files: dict[str, ChangedFile | None] = {}

    def file(self, path: str) -> ChangedFile | None:
        """Return a file that differs; None for one that is the same, or gone, or cannot be read."""
        if path not in self._files:
            pair = self.pairs.get(path)
            try:
                self._files[path] = ChangedFile(pair) if pair else None
            except (SyntaxError, ValueError, RecursionError):
                self._files[path] = None
        return self._files[path]

    def units(self, paths: Iterable[str]) -> Iterator[Unit]:
        """Yield the units of those of the files that differ."""
        for path in sorted(set(paths) & self.pairs.keys()):
            file = self.file(path)
            yield from file.units if file else ()

    def has_other_constants(self, path: str) -> bool:
        """Return whether a file's assignments at the margin differ, by their first lines: it need not be parsed."""
        pair = self.pairs.get(path)
        return pair is not None and _ASSIGNMENT.findall(pair.bad or "") != _ASSIGNMENT.findall(pair.good or "")

    def texts(self, proposal: Proposal) -> dict[str, str]:
        """Return the texts of all files that a proposal changes, by path."""
        files = {path: self.file(path) for path in sorted({unit.path for unit in proposal.units})}
        return {path: file.text(proposal.units, proposal.drafts) for path, file in files.items() if file is not None}

    def backwards(self, paths: Iterable[str]) -> TreeChange:
        """Return the change of some files from the good to the bad release."""
        pairs = ((path, self.pairs[path]) for path in paths)
        turned = {path: FilePair(path=path, bad=pair.good, good=pair.bad or "") for path, pair in pairs}
        return TreeChange(turned, self._paths)

    def module_path(self, module: str) -> str | None:
        """Return the file of a module of either release: "torch.fx" -> "torch/fx/__init__.py"."""
        stem = module.replace(".", "/")
        return next((path for path in (f"{stem}.py", f"{stem}/__init__.py") if path in self._paths), None)

    def bad_names(self, path: str) -> frozenset[str]:
        """Return what a file that differs binds in the bad release."""
        file = self.file(path)
        return file.bad_names if file else frozenset()

    @cache  # noqa: B019 - lives as long as the search
    def _binders(self, path: str) -> Mapping[str, tuple[Unit, ...]]:
        binders: dict[str, list[Unit]] = defaultdict(list)
        for unit in self.units([path]):
            for name in bound(unit.nodes) if not unit.owner else ():
                binders[name].append(unit)
        return {name: tuple(units) for name, units in binders.items()}

    def binders(self, path: str, name: str) -> tuple[Unit, ...]:
        """Return the units of a file that bind a name of its module."""
        return self._binders(path).get(name, ())

    def named(self, path: str, name: str) -> Unit | None:
        """Return a file's unit by its qualified name."""
        return next((unit for unit in self.units([path]) if unit.name == name), None)

    def good_class(self, path: str, name: str) -> ast.ClassDef | None:
        """Return a class of the good release's module."""
        file = self.file(path)
        parts = (part for part in (file.good_parts if file else ()) if re.split("[@ ]", part.name)[0] == name)
        return next((node for part in parts for node in part.nodes if isinstance(node, ast.ClassDef)), None)

    @cached_property
    def _bad_words(self) -> set[str]:  # of the bad release's files that differ
        return set().union(*(words_of(pair.bad) for pair in self.pairs.values() if pair.bad))

    @cached_property
    def _good_words(self) -> set[str]:
        return set().union(*(words_of(pair.good) for pair in self.pairs.values() if pair.good))

    @cache  # noqa: B019
    def removed_uses(self, word: str) -> tuple[Unit, ...]:
        """Return the units that no longer mention a word, where the good release's files that differ nowhere do."""
        if word in self._good_words:
            return ()
        units = self.units_where(lambda pair: _mentions(pair.bad, word))
        return tuple(unit for unit in units if unit.kind is not Kind.REMOVED and _mentions(unit.before, word))

    @cache  # noqa: B019
    def introducers(self, word: str) -> tuple[Unit, ...]:
        """Return the units that define a word which the bad release nowhere has."""
        units = self.units_where(lambda pair: word in (pair.good or "")) if word not in self._bad_words else ()
        return tuple(unit for unit in units if word in unit.after and word in defined_words(unit.nodes))

    @cache  # noqa: B019
    def setters(self, attribute: str) -> tuple[Unit, ...]:
        """Return the units that give an attribute to an object or a class, and did not in the bad release."""
        units = self.units_where(lambda pair: attribute in (pair.good or ""))
        found = [unit for unit in units if unit.owner and attribute in unit.after]
        return tuple(
            unit for unit in found if attribute in defined_words(unit.nodes) and not _mentions(unit.before, attribute)
        )

    @cache  # noqa: B019
    def callers(self, name: str) -> tuple[Unit, ...]:
        """Return the functions that call a name in both releases, and changed."""
        call = re.compile(rf"\b{re.escape(name)}\(")
        units = self.units_where(lambda pair: call.search(pair.good or "") is not None)
        found = [unit for unit in units if unit.is_function and unit.own_name != name]
        return tuple(unit for unit in found if call.search(unit.before) and call.search(unit.after))

    def classes_above(self, name: str) -> set[str]:
        """Return the name of a class and of those it inherits from, as far as their files differ."""

        def above(own: str) -> list[str]:
            paths = [path for path, pair in self.pairs.items() if f"class {own}(" in (pair.good or "")]
            nodes = filter(None, (self.good_class(path, own) for path in paths))
            return [base.rpartition(".")[2] for node in nodes for base in base_names(node)]

        return reached([name], above) if name else set()

    @cache  # noqa: B019
    def called(self, name: str) -> tuple[Unit, ...]:
        """Return the functions and methods of a name, whatever class or module they stand in."""
        units = self.units_where(lambda pair: f"def {name}(" in (pair.good or ""))
        return tuple(unit for unit in units if unit.own_name == name)

    def units_where(self, may_have: Callable[[FilePair], bool]) -> Iterator[Unit]:
        """Yield the units of the files that may have what is looked for; the other files are not parsed."""
        return self.units(path for path, pair in self.pairs.items() if may_have(pair))


def _mentions(text: str | None, word: str) -> bool:
    return text is not None and word in text and re.search(rf"\b{re.escape(word)}\b", text) is not None


def new_parameters(unit: Unit) -> set[str]:
    """Return the parameters that a changed function has in the good release only."""
    if unit.kind is Kind.REMOVED or unit.bad is None:
        return set()
    return _parameter_names(unit.nodes) - _parameter_names(unit.bad.nodes)


def _parameter_names(nodes: tuple[ast.stmt, ...]) -> set[str]:
    return {argument.arg for node in nodes if isinstance(node, Function) for argument in parameters(node)}


def defined_words(nodes: Collection[ast.stmt]) -> set[str]:
    """Return all words that statements define: definitions, parameters, what is assigned, and what a call registers."""
    words = {text for node in nodes if isinstance(node, ast.Expr) for text in uses([node]).strings}
    for node in (inner for top in nodes for inner in ast.walk(top)):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                words.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()) | ast.arg(arg=name):
                words.add(name)
    return words


def base_names(node: ast.ClassDef) -> list[str]:
    """Return the dotted names of a class's bases."""
    return [name for base in node.bases if (name := dotted(base))]
