"""A unit -> the units without which it cannot work, as far as the text tells.

A first guess costs nothing, a run costs seconds. What a unit needs is *hard* where a checker would call the code wrong
without it (a name that nothing binds, an import of what is not there), *likely* where it depends on the object (an
attribute, a parameter), and *lacking* where the bad release's binary has no such symbol: no change of Python brings
that.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property

from whichtorch.base.grouping import reached
from whichtorch.fix.tree_change import TreeChange, base_names, defined_words, new_parameters
from whichtorch.fix.units import Kind, Unit
from whichtorch.source.names import GIVEN, Uses, absolute, imported, uses

_NATIVE = ["torch", "_C"], ["torch", "ops"]  # what a binary offers to Python
_DEPTH = 6  # base classes above a class
_NAMESAKES = 3  # methods of one name that a call on an unknown object may mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """Units with all that they need."""

    units: frozenset[Unit]
    lacking: frozenset[str] = frozenset()  # symbols that the bad binary does not have


@dataclass(frozen=True, slots=True, kw_only=True)
class _Needs:
    hard: frozenset[Unit]
    likely: frozenset[Unit]
    lacking: frozenset[str]


class Closure:
    """What units of a change need. `lacking` returns the dotted symbols of C++ that only the good binary has."""

    def __init__(self, change: TreeChange, lacking: Callable[[], Collection[str]] = frozenset) -> None:
        self.change = change
        self._lacking = lacking  # a question to both binaries, asked where the text leaves it open

    def of(self, seeds: Iterable[Unit], within: Collection[Unit] | None = None, *, hard: bool = False) -> Closed:
        """Return units and what they need, and what that needs; of `within` only, where that is given."""

        def needed(unit: Unit) -> frozenset[Unit]:
            needs = self._needs(unit)
            wanted = needs.hard if hard else needs.hard | needs.likely
            return wanted if within is None else wanted.intersection(within)

        units = frozenset(reached(seeds, needed))
        return Closed(units=units, lacking=frozenset().union(*(self._needs(unit).lacking for unit in units)))

    @cache  # noqa: B019 - lives as long as the search
    def _needs(self, unit: Unit) -> _Needs:
        reader = _Reader(self.change, unit, self._lacking)
        return _Needs(
            hard=frozenset(reader.needs()), likely=frozenset(reader.likely_needs()), lacking=frozenset(reader.symbols())
        )


class _Reader:
    """Reads what one unit needs."""

    def __init__(self, change: TreeChange, unit: Unit, lacking: Callable[[], Collection[str]]) -> None:
        self.change, self.unit, self.lacking = change, unit, lacking
        self.uses: Uses = uses(unit.nodes)

    @cached_property
    def imports(self) -> dict[str, str]:
        """What names mean that imports of the module or of the unit bind, as dotted paths."""
        file = self.change.file(self.unit.path)
        inner = [node for top in self.unit.nodes for node in ast.walk(top)]
        return (file.good_aliases | file.good_meanings if file else {}) | imported(inner, self.unit.path)

    def needs(self) -> Iterator[Unit]:
        """Yield the units without which names or imports of this one mean nothing."""
        for name in self.uses.names:
            yield from self._name(name)
        if self.uses.annotations:
            yield from self._annotations()
        for level, module, name in self.uses.imports:
            yield from self._member(absolute(self.unit.path, level, module), name)

    def likely_needs(self) -> Iterator[Unit]:
        """Yield the units that bring the attributes and parameters which this one uses, and that miss what it drops."""
        for chain in self.uses.chains:
            yield from self._chain(chain)
        for word in self.uses.attributes | self.uses.strings:
            yield from self.change.introducers(word)
        for called in self.uses.calls:
            yield from self._called(called.function, called.keywords)
        if self.unit.bad and self.unit.good:
            for word in defined_words(self.unit.bad.nodes) - defined_words(self.unit.nodes):
                yield from self.change.removed_uses(word)

    def symbols(self) -> Iterator[str]:
        """Yield the symbols of C++ that it uses and the bad binary lacks."""
        chains = {self._meant(chain) for chain in self.uses.chains}
        chains |= {f"{module}.{name}" for level, module, name in self.uses.imports if level == 0 and name}
        chains |= {self.imports[name] for name in self.uses.names if name in self.imports}
        for chain in chains:
            parts = chain.split(".")
            if parts[:2] not in _NATIVE:
                continue
            prefixes = (".".join(parts[:end]) for end in range(3, len(parts) + 1))
            yield from (prefix for prefix in prefixes if prefix in self.lacking())

    def _meant(self, chain: str) -> str:
        first, _, rest = chain.partition(".")
        return f"{self.imports.get(first, first)}.{rest}".replace("torch._ops.ops.", "torch.ops.")

    def _name(self, name: str) -> Iterator[Unit]:
        path = self.unit.path
        if name in self.change.bad_names(path):
            return
        yield from (binders := self.change.binders(path, name))
        if not binders and name not in GIVEN:
            file = self.change.file(path)
            for module in file.good_stars if file else ():
                yield from self._member(module, name)

    def _annotations(self) -> Iterator[Unit]:
        """Yield what annotations need: names, or that nobody looks at them."""
        path = self.unit.path
        if future := self.change.named(path, "import annotations"):
            yield future
        elif "annotations" not in self.change.bad_names(path):
            for name in self.uses.annotations:
                yield from self._name(name)

    def _member(self, module: str, name: str) -> Iterator[Unit]:
        """Yield what `from module import name` needs, or `import module` where there is no name."""
        path = self.change.module_path(module)
        file = self.change.file(path) if path else None
        if file is None or path is None:
            if name and self.change.module_path(f"{module}.{name}"):
                yield from self._member(f"{module}.{name}", "")
            return
        if name and name not in self.change.bad_names(path):
            yield from (binders := self.change.binders(path, name))
            if not binders:
                yield from self._member(f"{module}.{name}", "")
        elif not name and file.bad_text is None:
            is_used = any(self._meant(chain).startswith(f"{module}.") for chain in self.uses.chains)
            yield from () if is_used else file.units  # a new module that is imported for its side effects

    def _chain(self, chain: str) -> Iterator[Unit]:
        first, *rest = chain.split(".")
        is_own = first in {"self", "cls"} and self.unit.owner
        if is_own or first not in self.imports:
            yield from self._attribute(self.unit.path, self.unit.owner if is_own else first, rest[0], _DEPTH)
            return
        path, names = self._resolved(".".join([self.imports[first], *rest]))
        if path is None or not names:
            return
        if names[0] not in self.change.bad_names(path):
            yield from self.change.binders(path, names[0])
        if len(names) > 1:
            yield from self._attribute(path, names[0], names[1], _DEPTH)

    def _resolved(self, dotted_path: str) -> tuple[str | None, list[str]]:
        """Return the file that a dotted path leads into, and the names that are left."""
        parts = dotted_path.split(".")
        for end in range(len(parts), 0, -1):
            if path := self.change.module_path(".".join(parts[:end])):
                return path, parts[end:]
        return None, parts

    def _attribute(self, path: str, owner: str, name: str, depth: int) -> Iterator[Unit]:
        """Yield the new unit that is this attribute of a class or of one above it."""
        unit = self.change.named(path, f"{owner}.{name}")
        if unit is not None:
            yield from [unit] if unit.kind is Kind.ADDED else []
            return
        node = self.change.good_class(path, owner.rpartition(".")[2]) if depth else None
        for base in base_names(node) if node else ():
            where, base_name = self._class(path, base)
            if where:
                yield from self._attribute(where, base_name, name, depth - 1)

    def _class(self, path: str, base: str) -> tuple[str | None, str]:
        file = self.change.file(path)
        names = file.good_meanings if file else {}
        first, _, rest = base.partition(".")
        if first not in names:
            return path, base
        where, left = self._resolved(f"{names[first]}.{rest}".rstrip("."))
        return where, ".".join(left)

    def _called(self, function: str, keywords: frozenset[str]) -> Iterator[Unit]:
        """Yield changed callees that have such a parameter in the good release only."""
        first, _, rest = function.partition(".")
        found: list[Unit] = []
        if first in self.imports:
            path, names = self._resolved(".".join(filter(None, [self.imports[first], rest])))
            found = self._callees(path, ".".join(names)) if path else []
        elif not rest:
            found = self._callees(self.unit.path, function)
        if not found:
            namesakes = [unit for unit in self.change.called(function.rpartition(".")[2]) if unit.owner or not rest]
            fitting = [unit for unit in namesakes if new_parameters(unit) & keywords]
            found = fitting if len(fitting) <= _NAMESAKES else []
        for unit in found:
            if new_parameters(unit) & keywords or (unit.kind is Kind.ADDED and unit.own_name in keywords):
                yield unit

    def _callees(self, path: str, name: str) -> list[Unit]:
        return [unit for unit in self.change.units([path]) if unit.name == name or unit.owner == name]
