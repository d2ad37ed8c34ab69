"""A cure -> the smallest one in it: delta debugging over its units, then over hunks and pieces of those that are left.

Generators, as the search for the first cure is. Free filters come first: what no checker would pass is not run.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from whichtorch.base.grouping import reached
from whichtorch.fix.cure_search import Trial, TrialEffect
from whichtorch.fix.functions_run import words_of
from whichtorch.fix.tree_change import lines_of
from whichtorch.fix.units import Kind, Proposal, Unit, in_order, statements_of
from whichtorch.search.delta import SetSearch, fewest
from whichtorch.source.names import bound, uses
from whichtorch.source.syntax import is_docstring

if TYPE_CHECKING:
    from whichtorch.fix.closure import Closure

Minimising = Generator[Proposal, Trial, Proposal]

Thing = TypeVar("Thing")

SMALL = 30  # lines of a patch that is read at a glance
SHORTEST_PIECE = 2  # lines: a shorter one is not worth a run
_BODIES = ("body", "orelse", "finalbody", "handlers")
_Node = ast.stmt | ast.excepthandler
POLISH_TRIALS = 16  # runs that leaving out hunks and pieces may take: more would hardly be seen


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
    """Return the proposal with the fewest hunks and pieces."""
    for unit in in_order(proposal.units):
        proposal = yield from _fewest_hunks(proposal, unit)
    proposal = yield from _without_unused(proposal)
    return (yield from _fewest_pieces(proposal))


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
        drafts = {unit: text for unit, text in proposal.drafts.items() if unit in fewer}
        smaller = Proposal(units=fewer, drafts=drafts)
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


def _fewest_pieces(proposal: Proposal) -> Minimising:
    """Return the proposal without the statements and branches of its new text that it cures without.

    A small patch is left as its authors wrote it: what another script needs of it is more than a few lines less.
    """
    tried = set[tuple[Unit, str]]()
    while _size(proposal) > SMALL:
        for unit in in_order(proposal.units):
            fewer = (each for each in without_pieces(unit.before, proposal.text(unit)) if (unit, each) not in tried)
            smaller = next(filter(None, (_draft(proposal, unit, each) for each in fewer)), None)
            if smaller is not None:
                break
        else:
            break
        tried.add((unit, smaller.drafts[unit]))
        if (yield from _cures(smaller)):
            proposal = smaller
    return proposal


def _size(proposal: Proposal) -> int:
    """Return how many lines a proposal adds or removes."""
    sides = ((unit.before.splitlines(), proposal.text(unit).splitlines()) for unit in proposal.units)
    diffs = (difflib.unified_diff(*side, lineterm="", n=0) for side in sides)
    return lines_of("\n".join(line for diff in diffs for line in diff))


def _draft(proposal: Proposal, unit: Unit, text: str) -> Proposal | None:
    """Return the proposal with another text of a unit; None where it does not parse, or uses what nothing binds."""
    try:
        names = uses(statements_of(text)).names
    except SyntaxError:
        return None
    known = [uses(part.nodes).names for part in (unit.bad, unit.good) if part]
    if not names <= set().union(*known):
        return None
    return Proposal(units=proposal.units, drafts={**proposal.drafts, unit: text})


def without_pieces(bad: str, text: str) -> Iterator[str]:
    """Yield the text without one statement or branch that is all new, the longest first; a class's head stays."""
    try:
        before, after = statements_of(bad), statements_of(text)
    except SyntaxError:
        return
    lines = text.splitlines(keepends=True)
    old = {ast.dump(node) for top in before for node in ast.walk(top) if isinstance(node, ast.stmt)}
    found = _pieces(after, lines, old, is_chosen=False)
    pieces = {(first, end) for first, end in found if end - first >= SHORTEST_PIECE}
    for first, end in sorted(pieces, key=lambda piece: (piece[0] - piece[1], piece)):
        yield "".join(lines[:first] + lines[end:])


def _pieces(
    body: Sequence[_Node], lines: Sequence[str], old: Collection[str], *, is_chosen: bool
) -> Iterator[tuple[int, int]]:
    """Yield first and end, as indices of lines, of what can be left out of a body: not its only statement."""
    for node in body:
        if is_chosen and len(body) > 1 and not is_docstring(node) and _is_new([node], old):
            yield _begin(node, lines), _end(node)
        for name in _BODIES:
            inner = getattr(node, name, None)
            if isinstance(inner, list) and inner:
                if name == "orelse" and _is_new(inner[0].body if _is_elif(inner[0], lines) else inner, old):
                    yield _branch(inner, lines)
                yield from _pieces(inner, lines, old, is_chosen=True)


def _is_new(nodes: Sequence[_Node], old: Collection[str]) -> bool:
    """Return whether none of these statements is in the bad release, except those that are common everywhere."""
    inner = [each for node in nodes for each in ast.walk(node) if isinstance(each, ast.stmt)]
    return not any(ast.dump(each) in old and not _is_common(each) for each in inner)


def _is_common(node: ast.stmt) -> bool:
    """Return whether a statement says nothing of where it came from: `pass`, `return None`."""
    is_plain_return = isinstance(node, ast.Return) and isinstance(node.value, (ast.Constant, type(None)))
    return is_plain_return or isinstance(node, (ast.Pass, ast.Break, ast.Continue))


def _is_elif(node: _Node, lines: Sequence[str]) -> bool:
    return isinstance(node, ast.If) and lines[node.lineno - 1].lstrip().startswith("elif")


def _branch(inner: Sequence[_Node], lines: Sequence[str]) -> tuple[int, int]:
    """Return the piece that is a whole `else` branch, or one `elif` branch of several."""
    first = inner[0]
    if isinstance(first, ast.If) and _is_elif(first, lines):
        return _begin(first, lines), _keyword_line(first.orelse[0], lines) if first.orelse else _end(first)
    return _keyword_line(first, lines), _end(inner[-1])


def _keyword_line(first: _Node, lines: Sequence[str]) -> int:
    """Return the index of the line with the `else` or `elif` that a branch begins with."""
    begin = first.lineno - 1
    while begin and not lines[begin].lstrip().startswith(("else", "elif")):
        begin -= 1
    return begin


def _begin(node: _Node, lines: Sequence[str]) -> int:
    """Return the index of a statement's first line, decorators and the comments above it included."""
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    begin = min([node.lineno, *(decorator.lineno for decorator in decorators)]) - 1
    while begin and lines[begin - 1].lstrip().startswith("#"):
        begin -= 1
    return begin


def _end(node: _Node) -> int:
    assert node.end_lineno is not None
    return node.end_lineno
