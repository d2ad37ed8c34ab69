"""Search an axis for the change; an ordered one: ask the strategy, run what it wants, until it has the answer.

All that a decision rests on is in the records, so an interrupted search goes on from there, and what a matrix has run
already counts.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from whichtorch.base.errors import UsageError
from whichtorch.bisect.command_tests import search_tests
from whichtorch.bisect.ledger import Ledger, SearchEndedError
from whichtorch.bisect.measured_search import measured_search
from whichtorch.bisect.probe_oracle import ProbeOracle, driven
from whichtorch.bisect.search_request import AxisName
from whichtorch.search.decision import answer_so_far, decide_parallel
from whichtorch.search.search_state import AnswerKind, Find, ProbeRun, SearchAnswer, SearchOptions, SearchVerdict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from whichtorch.bisect.bisection import Bisection
    from whichtorch.bisect.probe_oracle import ProbeSearch
    from whichtorch.bisect.search_request import Axis, SearchRequest
    from whichtorch.bisect.workbench import Workbench
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.model.events import Show


def search_axis(request: SearchRequest, environments: EnvironmentCache, show: Show) -> Bisection:
    """Search the axis of a request. Its module is imported here: other searches start without it."""
    is_laid = request.source is not None and request.source.command is None
    module = "commit_line" if is_laid else request.axis.row.module
    bisection: Bisection = import_module(f"whichtorch.bisect.axes.{module}").search(request, environments, show)
    return bisection


def search_between(request: SearchRequest, axis: Axis, bench: Workbench) -> Bisection:
    """Search an ordered axis between the bounds that a request names, or its ends."""
    named: dict[SearchVerdict, int] = {}
    notes = []
    for verdict, value in ((SearchVerdict.GOOD, request.good), (SearchVerdict.BAD, request.bad)):
        if value is not None:
            named[verdict] = axis.nearest(value)
            nearest = axis.values[named[verdict]]
            if not _means(value, nearest):
                notes.append(f"there is no {value}: {nearest} is used instead")
    if len(named) == 2 and len(set(named.values())) == 1:
        raise UsageError(f"--good and --bad both mean {nearest}", hint="name two different values")
    goal = _measured_between(request.goal, named, axis) if request.measure else _with_bounds(request.goal, named, axis)
    ledger = Ledger(request=request, bench=bench, axis=axis, goal=goal, named_bad=named.get(SearchVerdict.BAD))
    if request.measure:
        return measured_search(ledger, notes)
    of_tests = search_tests(ledger, named.values(), notes) if request.scenario.command else None
    return of_tests or bisected(ledger, named, notes)


def _means(value: str, other: str) -> bool:
    """Return whether a value means another: 2.9 means 2.9.0, and 2.9.0 means 2.9.0+cpu."""
    try:
        return Version(value) in {Version(other), Version(Version(other).public)}
    except InvalidVersion:
        return value == other


def _with_bounds(goal: SearchOptions, named: dict[SearchVerdict, int], axis: Axis) -> SearchOptions:
    """Return a goal with the bounds as positions.

    A single bound gets its neighbor as the other bound; the search looks further out from there. The order of two
    bounds says which change is meant.
    """
    if not named:
        return goal
    low, high = min(named.values()), max(named.values())
    if len(named) == 1:
        low = min(low, len(axis.values) - 2)
        return replace(goal, low=low, high=low + 1)
    find = Find.REGRESSION if named[SearchVerdict.GOOD] == low else Find.FIX
    return replace(goal, low=low, high=high, find=find if goal.find is Find.ANY else goal.find)


def _measured_between(goal: SearchOptions, named: dict[SearchVerdict, int], axis: Axis) -> SearchOptions:
    """Return the same for a number, which is compared between two ends: a single bound is one of them.

    What is good is the older end, unless nothing is newer.
    """
    if len(named) != 1:
        return _with_bounds(goal, named, axis)
    ((verdict, position),) = named.items()
    last = len(axis.values) - 1
    is_older = position < last if verdict is SearchVerdict.GOOD else position == 0
    return replace(goal, low=position, high=last) if is_older else replace(goal, low=0, high=position)


def bisected(ledger: Ledger, named: Mapping[SearchVerdict, int] | None = None, notes: Sequence[str] = ()) -> Bisection:
    """Search an ordered axis to the end of the question or of the budget, or until it is interrupted.

    `named` holds the bounds that the user names, `notes` are about them. A second KeyboardInterrupt passes through; the
    next run of the same search continues from the records.
    """
    named = named or {}
    ledger.recall_known()
    answer, ended_by = driven(ledger, _bisection(ledger), ProbeOracle(ledger))
    if answer is None:
        answer = answer_so_far(ledger.priced_search())
        if answer.kind is AnswerKind.INCONCLUSIVE:
            answer = replace(answer, reasons=(*ended_by, *answer.reasons))
    search, axis = ledger.search(), ledger.axis
    reasons = [*answer.reasons, *notes]
    for verdict, position in named.items():
        if search.label(position) is not verdict:
            reasons += [f"not {verdict}: {words}" for words in ledger.shown(position)]
    reasons += [
        f"{axis.values[position]} was run again and showed nothing more, so its verdict rests on fewer runs"
        for position in sorted(ledger.exhausted)
    ]
    is_named = SearchVerdict.BAD in named or axis.name is AxisName.LOCK
    if answer.kind is AnswerKind.NONE and ledger.reference is None and not is_named:
        noun = AxisName.VERSION if axis.name is AxisName.PACKAGE else axis.name
        reasons.append(f"if you know a {noun} where it fails, name it: --bad {noun.upper()}")
    if answer.kind is not AnswerKind.BOUNDARY:  # the bounds are the reason
        reasons += ledger.shown(*search.bounds)
    return ledger.bisection(answer.kind, reasons, map(ledger.boundary, answer.boundaries))


def _bisection(ledger: Ledger) -> ProbeSearch[SearchAnswer]:
    """Yield the probes that are wanted now, the most urgent first, and return the answer."""
    ended: frozenset[int] = frozenset()
    before: tuple[ProbeRun, ...] = ()  # observations before the last probes ended
    while True:
        search = ledger.priced_search()
        step = decide_parallel(search, ledger.request.jobs)
        if isinstance(step, SearchAnswer):
            return step
        if (again := step[0].position) in ended and search.observations == before:
            if again in ledger.exhausted:
                raise SearchEndedError(f"{search.name(again)} was run again and again without a result")
            ledger.exhausted.add(again)
            continue
        before = search.observations
        ended = yield step
