"""Candidates in their order -> the first set of units that cures, by as few runs as can be.

A generator: it yields what is to be tried and is sent what came of it. It knows no process and no clock, so that a
search that was interrupted is taken up by giving it the answers of the runs that were made.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from whichtorch.failures.tracebacks import CodeFrame  # noqa: TC001  pydantic reads it
from whichtorch.fix.tree_change import TreeChange, new_parameters
from whichtorch.fix.units import Kind, Proposal, Unit
from whichtorch.search.runs_oracle import Inquiry
from whichtorch.source.names import Uses, uses
from whichtorch.source.syntax import parse_module

if TYPE_CHECKING:
    from whichtorch.fix.closure import Closure

Search = Generator[Proposal, "Trial", Proposal | None]


class TrialEffect(StrEnum):
    """What a change does to the failure that is asked about."""

    CURED = "cured"
    SAME = "same"  # the script fails as before
    UNRESOLVED = "unresolved"  # it fails in another way


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The result of trying a proposal."""

    effect: TrialEffect
    exception: str = ""  # if unresolved: its type and the first line of its message
    frames: tuple[CodeFrame, ...] = ()  # innermost first
    seconds: float = 0


GUESS = Trial(effect=TrialEffect.SAME)  # most changes do nothing to a failure, and most of a cure is needed


def inquiry(
    change: TreeChange, question: str, test: Callable[[Mapping[str, str | None]], Trial], proposal: Proposal
) -> Inquiry[Trial]:
    """Return the run of a proposal, whose texts of files are given to `test`, on any thread.

    `question` is a digest of script, variant, environment and failure: with the files, what makes two trials the same.
    No run is needed where Python could not even read the files.
    """
    files = change.texts(proposal)
    text = json.dumps([question, sorted(files.items())])
    key = hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:20]
    answer = None
    for path, source in files.items():
        try:
            parse_module(source)
        except (SyntaxError, ValueError) as error:
            answer = answer or Trial(
                effect=TrialEffect.UNRESOLVED, exception=f"{type(error).__name__}: {path}: {error}"
            )
    return Inquiry(key=key, run=partial(test, files), answer=answer)


def in_words(number: int, proposal: Proposal, trial: Trial) -> str:
    """Return the line of progress on a trial."""
    names = sorted(unit.name for unit in proposal.units)
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    part = " (in part)" if proposal.drafts else ""
    because = f", {trial.exception}" if trial.effect is TrialEffect.UNRESOLVED else ""
    return f"trial {number}: {shown}{part}: {trial.effect}{because}"


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


STEPS = 8  # times that a message may ask for more units, before the window is split
DEPTH = 16  # times that a window of candidates is split: until single ones are left
LAST_DEPTH = 2  # of the last windows: what broke the script alone, and what hardly ever matters


class CureSearch:
    """One search; call `run` once, and read afterwards what was of no effect."""

    def __init__(self, closure: Closure) -> None:
        self.closure = closure
        self.harmless: set[Unit] = set()  # tried, alone or with others, and the script failed as before
        self.refused: dict[Unit, str] = {}  # a run has shown that these use a symbol which the bad binary lacks
        self.breaking: dict[Unit, None] = {}  # tried alone, and the script failed in another way

    def run(self, seeds: Iterable[Unit], last: Iterable[Unit] = ()) -> Search:
        """Try windows of 1, 1, 2, 4, 8, … seeds, each with what they need; return the first proposal that cures.

        Windows are disjoint, because a unit that breaks the script would spoil all that contain it. A window that
        fails in another way is given what its message asks for, else it is split. At the end, all that was of no
        effect alone is tried together, then what broke the script alone, as two units may need each other, and then
        `last`: what is not worth windows of its own. Whatever the answers, n seeds take at most 2 n windows of STEPS
        trials, and a few more at the end.
        """
        possible = (seed for seed in seeds if self._can_work([seed]))
        begin = 0
        while window := list(islice(possible, max(1, begin))):
            begin += len(window)
            cure = yield from self._tried([seed for seed in window if seed not in self.harmless], DEPTH)
            if cure is not None:
                return cure
        if begin > 1 and self.harmless:
            together = Proposal(units=frozenset(self.harmless))
            if (yield together).effect is TrialEffect.CURED:
                return together
        if len(self.breaking) > 1:
            cure = yield from self._tried(list(self.breaking), LAST_DEPTH)
            if cure is not None:
                return cure
        return (yield from self._tried(self._possible(last), LAST_DEPTH))

    def _possible(self, window: Iterable[Unit]) -> list[Unit]:
        """Return what of a window is worth a run: not known to be of no effect, nor to need what the binary lacks."""
        return [seed for seed in window if seed not in self.harmless and self._can_work([seed])]

    def _can_work(self, units: Iterable[Unit]) -> bool:
        closed = self.closure.of(units)
        return not closed.lacking and self.refused.keys().isdisjoint(closed.units)

    def _tried(self, window: Sequence[Unit], depth: int) -> Search:
        units = self.closure.of(window).units
        if units <= self.harmless:
            return None
        seen = set[str]()  # a failure that comes back has not moved on
        for _ in range(STEPS):
            trial = yield Proposal(units=units)
            if trial.effect is TrialEffect.CURED:
                return Proposal(units=units)
            if trial.effect is TrialEffect.SAME:
                self.harmless |= units
                return None
            if more_refused := {unit: why for unit, why in refused(trial, units).items() if unit not in self.refused}:
                self.refused |= more_refused
                window = self._possible(window)
                units = self.closure.of(window).units
                if not units or units <= self.harmless:
                    return None
                continue
            more = self.closure.of([*units, *asked_for(trial, self.closure.change, units)])
            if more.units == units or not self._can_work(more.units) or trial.exception in seen:
                break
            seen.add(trial.exception)
            units = more.units
        if len(window) == 1:
            self.breaking[window[0]] = None
        if len(window) > 1 and depth:
            for part in self._parts(window, blamed(trial, units)):
                cure = yield from self._tried(part, depth - 1)
                if cure is not None:
                    return cure
        return None

    def _parts(self, window: Sequence[Unit], guilty: set[Unit]) -> tuple[Sequence[Unit], Sequence[Unit]]:
        """Return two parts of a window: what does without the units that broke the script, and what needs them."""
        free = [seed for seed in window if not self.closure.of([seed]).units & guilty]
        if 0 < len(free) < len(window):
            return free, [seed for seed in window if seed not in free]
        middle = len(window) // 2
        return window[:middle], window[middle:]
