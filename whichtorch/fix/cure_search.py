"""Candidates in their order -> the first set of units that cures, by as few runs as can be -> the smallest cure in it.

That is delta debugging over its units, then over hunks of those that are left. Free filters come first: what no checker
would pass is not run. Both searches are generators: they yield what is to be tried and are sent what came of it. They
know no process and no clock, so that a search that was interrupted is taken up by giving it the answers of the runs
that were made.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, TypeVar

from whichtorch.base.grouping import reached
from whichtorch.failures.tracebacks import CodeFrame  # noqa: TC001  pydantic reads it
from whichtorch.fix.functions_run import FunctionsRun, words_of
from whichtorch.fix.tree_change import TreeChange, new_parameters
from whichtorch.fix.units import FilePair, Kind, Proposal, Unit, in_order, statements_of
from whichtorch.search.delta import SetSearch, fewest
from whichtorch.search.runs_oracle import Inquiry
from whichtorch.source.names import bound, uses
from whichtorch.source.syntax import Definition, Function, parse_module

if TYPE_CHECKING:
    from whichtorch.fix.closure import Closure

Search = Generator[Proposal, "Trial", Proposal | None]
Minimising = Generator[Proposal, "Trial", Proposal]
Thing = TypeVar("Thing")

POLISH_TRIALS = 16  # runs that leaving out hunks may take: more would hardly be seen


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
            said = f"{type(error).__name__}: {path}: {error}"
            answer = answer or Trial(effect=TrialEffect.UNRESOLVED, exception=said)
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
_WORD = re.compile(r"[A-Za-z_]\w+")
_SPECIAL = re.compile(r"\w_\w|[A-Z]{3}")  # a word of programs: of plain English ones too many functions are named
INNER_FRAMES = 3  # of the traceback, whose functions may have to change as well
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
        self.breaking: dict[Unit, None] = {}  # tried alone, and the script failed in another way

    def run(self, seeds: Iterable[Unit], last: Iterable[Unit] = ()) -> Search:
        """Try windows of 1, 1, 2, 4, 8, … seeds, each with what they need; return the first proposal that cures.

        Windows are disjoint, because a unit that breaks the script would spoil all that contain it. A window that
        fails in another way is given what its message asks for, else it is split. At the end, all that was of no
        effect alone is tried together, then what broke the script alone, as two units may need each other, and then
        `last`: what is not worth windows of its own. Whatever the answers, n seeds take at most 2 n windows of STEPS
        trials, and a few more at the end.
        """
        able = (seed for seed in seeds if self._can_work([seed]))
        begin = 0
        while window := list(islice(able, max(1, begin))):
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
        possible = [unit for unit in last if unit not in self.harmless and self._can_work([unit])]
        return (yield from self._tried(possible, LAST_DEPTH))

    def _can_work(self, units: Iterable[Unit]) -> bool:
        return not self.closure.of(units).lacking

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


NAMESAKES = 3  # functions of one name that a script, or a message, may mean
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
    for unit in change.units(filter(change.has_other_constants, loaded)):
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


def smallest(cure: Proposal, closure: Closure, idle: Collection[Unit] = ()) -> Minimising:
    """Return the smallest proposal within a cure. `idle` are its units that the cured run did not reach.

    First each unit keeps all that it may need, so that hardly any trial breaks; of the few that are then left, each
    is tried without what it only may need. Whatever the answers, n units take at most 2 n (n + 3) + n trials and
    POLISH_TRIALS + 2, and none that failed is tried again.
    """
    units = cure.units
    failed = set[frozenset[Unit]]()
    used = closure.of(units - frozenset(idle), units, hard=True).units
    if used and used != units:
        if (yield from _cures(Proposal(units=used))):
            units = used
        else:
            failed.add(used)
    for hard in (False, True):

        def closed(wanted: frozenset[Unit], whole: frozenset[Unit], hard: bool = hard) -> frozenset[Unit]:
            return closure.of(wanted, whole, hard=hard).units

        units = yield from _tried(fewest(in_order(units), closed, failed), lambda some: Proposal(units=some))
    proposal = Proposal(units=units)
    proposal = yield from _bounded(_polished(proposal), proposal)
    return (yield from _without_unused(proposal))


def _cures(proposal: Proposal) -> Generator[Proposal, Trial, bool]:
    return (yield proposal).effect is TrialEffect.CURED


def _tried(
    search: SetSearch[Thing], proposed: Callable[[frozenset[Thing]], Proposal | None]
) -> Generator[Proposal, Trial, frozenset[Thing]]:
    """Return what a search of sets finds; a set cures if its proposal does, and one without a proposal does not."""
    try:
        wanted = next(search)
        while True:
            proposal = proposed(wanted)
            wanted = search.send(proposal is not None and (yield from _cures(proposal)))
    except StopIteration as end:
        found: frozenset[Thing] = end.value
        return found


def _bounded(search: Minimising, proposal: Proposal) -> Minimising:
    """Return what a search makes of a proposal, or what it has come to after POLISH_TRIALS."""
    try:
        smaller = next(search)
        for _ in range(POLISH_TRIALS):
            trial = yield smaller
            if trial.effect is TrialEffect.CURED:
                proposal = smaller
            smaller = search.send(trial)
    except StopIteration as end:
        proposal = end.value
    return proposal


def _polished(proposal: Proposal) -> Minimising:
    """Return the proposal with the fewest hunks."""
    for unit in in_order(proposal.units):
        proposal = yield from _fewest_hunks(proposal, unit)
    return (yield from _without_unused(proposal))


def _fewest_hunks(proposal: Proposal, unit: Unit) -> Minimising:
    """Return the proposal with the fewest hunks of one changed unit that still cure."""
    if unit.kind is not Kind.CHANGED or unit.name.startswith("import "):
        return proposal
    bad, good = unit.before.splitlines(keepends=True), unit.after.splitlines(keepends=True)
    blocks = difflib.SequenceMatcher(None, bad, good, autojunk=False).get_opcodes()
    kept = [number for number, block in enumerate(blocks) if block[0] != "equal"]
    if len(kept) < 2:
        return proposal

    def text_with(numbers: Collection[int]) -> str:
        chosen = (
            good[first:end] if number in numbers else bad[start:stop]
            for number, (_, start, stop, first, end) in enumerate(blocks)
        )
        return "".join(line for lines in chosen for line in lines)

    best = yield from _tried(fewest(kept), lambda numbers: _draft(proposal, unit, text_with(numbers)))
    return _draft(proposal, unit, text_with(best)) or proposal if len(best) < len(kept) else proposal


def _without_unused(proposal: Proposal) -> Minimising:
    """Return the proposal without the new units that none of the others mentions any more."""
    unused = in_order(proposal.units - _used(proposal))
    for some in dict.fromkeys([tuple(unused), *((unit,) for unit in unused)]):
        fewer = proposal.units.difference(some)
        if not fewer or len(fewer) == len(proposal.units):
            continue
        smaller = Proposal(units=fewer, drafts={unit: text for unit, text in proposal.drafts.items() if unit in fewer})
        if (yield from _cures(smaller)):
            proposal = smaller
            if len(some) > 1:
                break
    return proposal


def _used(proposal: Proposal) -> set[Unit]:
    """Return the units that change what is there, and the new ones that these mention, and so on."""
    names = {unit: {unit.own_name, *bound(unit.nodes)} for unit in proposal.units}

    def mentioned(by: Unit) -> list[Unit]:
        words = words_of(proposal.text(by))
        return [unit for unit in names if words & names[unit]]

    return reached((unit for unit in proposal.units if unit.kind is not Kind.ADDED), mentioned)


def _draft(proposal: Proposal, unit: Unit, text: str) -> Proposal | None:
    """Return the proposal with another text of a unit; None where it does not parse, or uses what nothing binds."""
    try:
        names = uses(statements_of(text)).names
    except SyntaxError:
        return None
    if not names <= set().union(*(uses(part.nodes).names for part in (unit.bad, unit.good) if part)):
        return None
    return Proposal(units=proposal.units, drafts={**proposal.drafts, unit: text})
