"""Search an ordered axis: from a question to the axis, its bounds and the bisector."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from matrix import config
from matrix.errors import UsageError
from matrix.search.axes import Versions, check_range
from matrix.search.bisect import Bisector
from matrix.search.evidence import Find
from matrix.search.question import workbench

if TYPE_CHECKING:
    from matrix.environments.cache import EnvironmentCache
    from matrix.model import Request
    from matrix.search import evidence
    from matrix.search.axes import Axis
    from matrix.search.bisection import Bisection
    from matrix.search.question import Question, Show, Workbench


def search_versions(question: Question, cache: EnvironmentCache, show: Show) -> Bisection:
    """Search the versions that the question's matrix file names.

    Raises UsageError or PreventedError where there is nothing to search; KeyboardInterrupt passes through.
    """
    expansion = config.expand(question.file, cache=question.home / "cache")
    usable = tuple(request for request in expansion.requests if request.problem is None)
    axis = Versions(usable)
    check_range(axis, expansion.requests)
    with workbench(question, cache, show) as bench:
        found = bisector(question, axis, bench).run()
    return found.model_copy(update={"common": common(usable[0])})


def bisector(question: Question, axis: Axis, bench: Workbench) -> Bisector:
    """Return what searches an axis for a question."""
    return Bisector(
        axis=axis,
        scenario=question.scenario,
        variant=question.variant,
        options=question.options,
        asked=_with_bounds(question, axis),
        cache=bench.cache,
        records=bench.records,
        prober=bench.prober,
        emit=bench.emit,
        jobs=question.jobs,
        any_failure=question.any_failure,
        budget=question.budget,
        installs=bench.installs,
    )


def _with_bounds(question: Question, axis: Axis) -> evidence.Options:
    """Return what is asked with the bounds as positions.

    One bound alone is put beside its neighbour, from where the search for the other one sets out. Of two the
    order says which change is meant.
    """
    good = None if question.good is None else axis.nearest(question.good)
    bad = None if question.bad is None else axis.nearest(question.bad)
    asked = question.asked
    if good is None and bad is None:
        return asked
    if good is not None and bad is not None:
        if good == bad:
            raise UsageError(f"--good and --bad both mean {axis.values[good]}", hint="name two different values")
        find = Find.REGRESSION if good < bad else Find.FIX
        find = find if asked.find is Find.ANY else asked.find
        return replace(asked, low=min(good, bad), high=max(good, bad), find=find)
    only = good if good is not None else bad
    assert only is not None
    low = min(only, len(axis.values) - 2)
    return replace(asked, low=low, high=low + 1)


def common(request: Request) -> dict[str, str]:
    """Return what all the environments of a search share."""
    return {"build": request.build.name, "python": request.python, "config": request.config.name}
