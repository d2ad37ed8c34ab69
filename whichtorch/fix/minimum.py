"""A cure -> the smallest one in it: delta debugging over its units, then over hunks of those that are left.

Generators, as the search for the first cure is. Free filters come first: what no checker would pass is not run.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Generator
from typing import TYPE_CHECKING, TypeVar

from whichtorch.base.grouping import reached
from whichtorch.fix.cure_search import Trial, TrialEffect
from whichtorch.fix.functions_run import words_of
from whichtorch.fix.units import Kind, Proposal, Unit, in_order, statements_of
from whichtorch.search.delta import SetSearch, fewest
from whichtorch.source.names import bound, uses

if TYPE_CHECKING:
    from whichtorch.fix.closure import Closure

Minimising = Generator[Proposal, Trial, Proposal]

Thing = TypeVar("Thing")

POLISH_TRIALS = 16  # runs that leaving out hunks may take: more would hardly be seen


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
