"""Search an ordered axis: from a question to the axis, its bounds and the bisector."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from packaging.version import InvalidVersion, Version

from matrix.bisect.axes.axis import Versions, check_range
from matrix.bisect.driver import Bisector
from matrix.bisect.question import workbench
from matrix.bisect.strategy.evidence import Find, SearchVerdict
from matrix.errors import UsageError
from matrix.plan.planning import expand

if TYPE_CHECKING:
    from matrix.bisect.axes.axis import Axis
    from matrix.bisect.bisection import Bisection
    from matrix.bisect.question import SearchQuestion, Workbench
    from matrix.bisect.strategy import evidence
    from matrix.environments.provider import Environments
    from matrix.events import Show
    from matrix.model import Request


def search_versions(question: SearchQuestion, cache: Environments, show: Show) -> Bisection:
    """Search the versions that the question's matrix file names.

    Raises UsageError or PreventedError where there is nothing to search; KeyboardInterrupt passes through.
    """
    expansion = expand(question.file, cache=question.home / "cache")
    usable = tuple(request for request in expansion.requests if request.problem is None)
    axis = Versions(usable)
    check_range(axis, expansion.requests)
    with workbench(question, cache, show) as bench:
        found = bisector(question, axis, bench).run()
    reasons = (*expansion.notes, *found.reasons)  # which build `auto` is, and what was yanked
    return found.model_copy(update={"common": common(usable[0]), "reasons": reasons})


def bisector(question: SearchQuestion, axis: Axis, bench: Workbench) -> Bisector:
    """Return what searches an axis for a question."""
    named = _named(question, axis)
    return Bisector(
        axis=axis,
        scenario=question.scenario,
        variant=question.variant,
        options=question.options,
        asked=_with_bounds(question.asked, named, axis),
        named={position: verdict for verdict, position in named.items()},
        notes=_notes(question, axis),
        cache=bench.cache,
        records=bench.records,
        prober=bench.prober,
        emit=bench.emit,
        jobs=question.jobs,
        any_failure=question.any_failure,
        budget=question.budget,
        installs=bench.installs,
    )


def _named(question: SearchQuestion, axis: Axis) -> dict[SearchVerdict, int]:
    """Return the positions of the bounds that the question names."""
    values = {SearchVerdict.GOOD: question.good, SearchVerdict.BAD: question.bad}
    named = {verdict: axis.nearest(value) for verdict, value in values.items() if value is not None}
    if len(named) == 2 and len(set(named.values())) == 1:
        same = axis.values[named[SearchVerdict.GOOD]]
        raise UsageError(f"--good and --bad both mean {same}", hint="name two different values")
    return named


def _notes(question: SearchQuestion, axis: Axis) -> tuple[str, ...]:
    """Return which of the named bounds do not exist, and what is taken for them."""
    named = [value for value in (question.good, question.bad) if value is not None]
    taken = [(value, axis.values[axis.nearest(value)]) for value in named]
    return tuple(f"there is no {value}: {one} is taken for it" for value, one in taken if not _is_meant(value, one))


def _is_meant(value: str, found: str) -> bool:
    """Return whether a value is what is called so: 2.9 means 2.9.0, and 2.9.0 its +cpu."""
    try:
        return Version(value) in {Version(found), Version(Version(found).public)}
    except InvalidVersion:
        return value == found


def _with_bounds(asked: evidence.SearchOptions, named: dict[SearchVerdict, int], axis: Axis) -> evidence.SearchOptions:
    """Return what is asked with the bounds as positions.

    One bound alone is put beside its neighbour, from where the search for the other one sets out. Of two the
    order says which change is meant.
    """
    if not named:
        return asked
    low, high = min(named.values()), max(named.values())
    if len(named) == 1:
        low = min(low, len(axis.values) - 2)
        return replace(asked, low=low, high=low + 1)
    find = Find.REGRESSION if named[SearchVerdict.GOOD] == low else Find.FIX
    return replace(asked, low=low, high=high, find=find if asked.find is Find.ANY else asked.find)


def common(request: Request) -> dict[str, str]:
    """Return what all the environments of a search share."""
    return {"build": request.build.name, "python": request.python, "config": request.config.name}
