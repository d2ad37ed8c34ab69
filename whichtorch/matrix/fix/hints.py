"""A trial that failed in another way -> what its message says: which units it asks for, blames, or rules out."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING

from whichtorch.matrix.fix.tree_change import new_parameters
from whichtorch.matrix.fix.units import Kind, Unit
from whichtorch.matrix.source.names import uses

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from whichtorch.matrix.fix.tree_change import TreeChange
    from whichtorch.matrix.fix.trials import Trial
    from whichtorch.matrix.source.names import Uses

_MISSING = re.compile(
    r"name '(?P<name>\w+)' is not defined"
    r"|(?:'(?P<owner>\w+)' object )?has no attribute '(?P<attribute>\w+)'"
    r"|cannot import name '(?P<imported>\w+)' from '(?P<source>[\w.]+)'"
    r"|No module named '(?P<module>[\w.]+)'"
)
_ARGUMENT = re.compile(
    r"(?:(?P<owner>\w+)\.)?(?P<function>\w+)\(\) "
    r"(?:got an unexpected keyword argument '(?P<keyword>\w+)'|takes|(?P<missing>missing))"
)
_CALLED = re.compile(r"(?P<called>\w+(?:\.\w+)*)\(\) ")
_REFUSED = re.compile(
    r"'(?P<owner>torch\._C[\w.]*|_OpNamespace' '\w+)'(?: object)? has no attribute '(?P<attribute>\w+)'"
    r"|cannot import name '(?P<name>\w+)' from '(?P<source>torch\._C[\w.]*)'"
    r"|No module named '(?P<module>torch\._C[\w.]*)'"
    r"|op of '(?P<packet>[\w.]+)' has no overload name '(?P<overload>\w+)'"
)
_WORD = re.compile(r"[A-Za-z_]\w+")
_SPECIAL = re.compile(r"\w_\w|[A-Z]{3}")  # a word of programs: of plain English ones too many functions are named
INNER_FRAMES = 3  # of the traceback, whose functions may have to change as well
NAMESAKES = 3  # new functions of one name that a word may mean
MOST = 12  # units that one message may ask for: a word that means more means nothing


def asked_for(trial: Trial, change: TreeChange, tried: Collection[Unit]) -> list[Unit]:
    """Return the units that a trial's exception names, or else the changed functions where it was raised."""
    for found in (_named(trial.exception, change), _worded(trial.exception, change), _at_frames(trial, change)):
        fresh = [unit for unit in dict.fromkeys(found) if unit not in tried and not unit.cosmetic]
        if fresh and len(fresh) <= MOST:
            return fresh
    return []


def blamed(trial: Trial, units: Collection[Unit]) -> set[Unit]:
    """Return which of the units that were tried an exception is about: a function that it names, or was raised in."""
    called = {match["called"] for match in _CALLED.finditer(trial.exception)}
    inside = [frame for frame in trial.frames if frame.path.endswith(".py")][:1]
    raised = {(frame.path, frame.function.rpartition(".")[2]) for frame in inside}
    return {
        unit for unit in units if unit.name in called or unit.own_name in called or (unit.path, unit.own_name) in raised
    }


def refused(trial: Trial, units: Collection[Unit]) -> dict[Unit, str]:
    """Return which of the units that were tried use what the bad binary lacks, by a message of it, and the symbol."""
    match = _REFUSED.search(trial.exception)
    if match is None:
        return {}
    owner = match["owner"] or match["source"] or f"torch.ops.{match['packet']}"
    name = match["attribute"] or match["name"] or match["overload"]
    symbol = match["module"] or f"{owner}.{name}".replace("_OpNamespace' '", "torch.ops.")
    return {unit: symbol for unit in units if _mentions(uses(unit.nodes), match)}


def _mentions(used: Uses, match: re.Match[str]) -> bool:
    """Return whether code uses what a message says the binary has not."""
    if match["packet"]:
        return any(f"{match['packet']}.{match['overload']}" in chain for chain in used.chains)
    modules = {module for _, module, name in used.imports if name == match["name"] or module == match["module"]}
    return match["attribute"] in used.attributes or bool(modules & {match["source"], match["module"]} - {None})


def _named(message: str, change: TreeChange) -> Iterator[Unit]:
    for match in _MISSING.finditer(message):
        if match["imported"] and (path := change.module_path(match["source"])):
            yield from change.binders(path, match["imported"])
        if match["module"] and (path := change.module_path(match["module"])) and (file := change.file(path)):
            yield from file.units
        for word in filter(None, (match["name"], match["attribute"])):
            yield from _added(change, word)
            yield from change.introducers(word)
            yield from change.removed_uses(word)
        if match["attribute"]:
            setters = change.setters(match["attribute"])
            above = change.classes_above(match["owner"] or "")
            yield from [unit for unit in setters if unit.owner.rpartition(".")[2] in above] or setters
    for match in _ARGUMENT.finditer(message):
        namesakes = change.called(match["function"])
        keyword = match["keyword"]
        yield from (unit for unit in namesakes if not keyword or keyword in new_parameters(unit))
        yield from change.introducers(keyword) if keyword else ()
        if match["missing"]:  # the callers that know of the new argument
            is_class = match["function"] in {"__init__", "__new__"} and match["owner"]
            yield from change.callers(match["owner"] if is_class else match["function"])


def _worded(message: str, change: TreeChange) -> Iterator[Unit]:
    """Yield what a message names, however it is put: what the bad release does not know, and new functions."""
    for word in dict.fromkeys(_WORD.findall(message)):
        yield from change.introducers(word)
        added = list(_added(change, word)) if _SPECIAL.search(word) else []
        yield from added if len(added) <= NAMESAKES else []


def _added(change: TreeChange, name: str) -> Iterator[Unit]:
    return (unit for unit in change.called(name) if unit.kind is Kind.ADDED)


def _at_frames(trial: Trial, change: TreeChange) -> Iterator[Unit]:
    """Yield the changed functions that the innermost frames are in; lines have moved, so they go by name."""
    inside = (frame for frame in trial.frames if change.file(frame.path) is not None)
    for frame in islice(inside, INNER_FRAMES):
        own = frame.function.rpartition(".")[2]
        yield from (unit for unit in change.called(own) if unit.path == frame.path and unit.kind is not Kind.REMOVED)
