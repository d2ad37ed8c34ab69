"""Which units are tried, and in which order: what stands nearest to the failure first."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from whichtorch.fix.functions_run import FunctionsRun, words_of
from whichtorch.fix.units import FilePair, Kind, Unit
from whichtorch.source.names import bound
from whichtorch.source.syntax import Definition, Function

if TYPE_CHECKING:
    from whichtorch.failures.tracebacks import CodeFrame
    from whichtorch.fix.tree_change import TreeChange

NAMESAKES = 3  # functions of one name that a script may mean
_HEADING = re.compile(r"^\s*(?:@|(?:async )?def ).*$", re.MULTILINE)
_CONSTANT = (ast.Assign, ast.AnnAssign, ast.AugAssign)


def each_once(tiers: Iterable[Callable[[], Iterable[Unit]]], seen: dict[Unit, None]) -> Iterator[Unit]:
    """Yield the units of tiers, each once, and note them in `seen`; a tier is asked for when it is its turn."""
    for unit in (unit for tier in tiers for unit in tier()):
        if unit not in seen:
            seen[unit] = None
            yield unit


def on_stack(change: TreeChange, frames: Sequence[CodeFrame]) -> list[Unit]:
    """Return the changed functions that the failing frames are in, innermost first."""
    found = ((unit, frame.line) for frame in frames for unit in change.units([frame.path]))
    at_line = (unit for unit, line in found if unit.bad and unit.bad.first <= line <= unit.bad.last)
    return list(dict.fromkeys(unit for unit in at_line if not unit.cosmetic))


def named(change: TreeChange, loaded: Collection[str], words: Collection[str]) -> list[Unit]:
    """Return the functions of loaded modules that a script names, the rarest names first, of these the new ones.

    Their own names count, and what their decorators register. A compiler may read such a function and never run it.
    """
    found: dict[str, list[Unit]] = defaultdict(list)
    for unit in change.units_where(lambda pair: pair.path in loaded and bool(_headings(pair).intersection(words))):
        if unit.is_function and not unit.cosmetic:
            for word in _names(unit).intersection(words):
                found[word].append(unit)
    rare = sorted((units for units in found.values() if len(units) <= NAMESAKES), key=len)
    return sorted(dict.fromkeys(unit for units in rare for unit in units), key=lambda unit: unit.kind is not Kind.ADDED)


def _headings(pair: FilePair) -> set[str]:
    """Return the words of a good module's `def` lines and decorators."""
    return words_of("\n".join(_HEADING.findall(pair.good or "")))


def _names(unit: Unit) -> set[str]:
    """Return a function's own name and the names in its decorators."""
    nodes = [node for node in unit.nodes if isinstance(node, Definition)]
    inner = (each for node in nodes for decorator in node.decorator_list for each in ast.walk(decorator))
    return {unit.own_name} | {each.attr for each in inner if isinstance(each, ast.Attribute)}


def by_runs(
    change: TreeChange, bad: FunctionsRun, good: FunctionsRun, words: Collection[str], loaded: Collection[str]
) -> list[Unit]:
    """Return the units that a bad and a good run of the script reach, the most telling first.

    These are functions that are new and ran in the good run, constants that functions use which ran, and functions
    that changed, or can go, and ran. The three take turns, as nobody knows which kind of fix it is; of functions come
    first what ran in one of the runs only, and what began to run last. `words` are those of all functions that ran,
    in files that differ or not; `loaded` are the files with constants.
    """
    units = [unit for unit in change.units(bad.active | good.active) if unit.kind is not Kind.REMOVED or _can_go(unit)]
    when = {unit: (bad.place(unit.path, unit.bad), good.place(unit.path, unit.good)) for unit in units}
    ran = [unit for unit in units if when[unit] != (None, None) and not unit.cosmetic]
    ran.sort(key=lambda unit: (None not in when[unit], -_latest(when[unit], bad, good)))
    new = [unit for unit in ran if unit.kind is Kind.ADDED]
    changed = [unit for unit in ran if unit.kind is not Kind.ADDED]
    flags = _constants(change, loaded, words)
    in_turns = (unit for units in zip_longest(new, flags, changed) for unit in units if unit is not None)
    return list(dict.fromkeys(in_turns))


def _constants(change: TreeChange, loaded: Iterable[str], words: Collection[str]) -> Iterator[Unit]:
    """Yield the constants of loaded modules that functions use which ran."""
    paths = filter(change.has_other_constants, loaded)
    for unit in change.units(paths):
        is_constant = all(isinstance(node, _CONSTANT) for node in unit.nodes)
        if is_constant and bound(unit.nodes).intersection(words) and not unit.cosmetic:
            yield unit


def at_import(change: TreeChange, loaded: Iterable[str]) -> Iterator[Unit]:
    """Yield what else changed that runs when the loaded modules are imported: all but imports and plain functions."""
    for unit in change.units(loaded):
        is_import = unit.name.startswith("import ")
        if unit.kind is not Kind.REMOVED and not is_import and any(map(_acts, unit.nodes)) and not unit.cosmetic:
            yield unit


def _latest(places: tuple[int | None, int | None], bad: FunctionsRun, good: FunctionsRun) -> float:
    """Return when something began to run, from 0 at the begin of a run to 1 at its end."""
    runs = zip(places, (bad, good), strict=True)
    return max(place / max(1, len(run.functions)) for place, run in runs if place is not None)


def _can_go(unit: Unit) -> bool:
    """Return whether a removed function can be missed: a base class has it, too, or its decorator registers it."""
    nodes = unit.bad.nodes if unit.bad else ()
    return bool(unit.owner) or any(isinstance(node, Definition) and node.decorator_list for node in nodes)


def _acts(node: ast.stmt) -> bool:
    return not isinstance(node, Function) or bool(node.decorator_list)
