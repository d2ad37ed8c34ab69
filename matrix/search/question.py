"""What a user asks of a search, and the work of answering it: which axis, which evidence, which run."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from matrix import config, store
from matrix.asking import answering
from matrix.errors import UsageError
from matrix.events import EnvironmentStage
from matrix.lab import opened_run
from matrix.plan import Options
from matrix.search import evidence
from matrix.search.axes import Versions, check_range
from matrix.search.bisect import Bisector, Budget
from matrix.search.evidence import Find
from matrix.search.probing import Prober

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from matrix.config import MatrixFile
    from matrix.environments.cache import EnvironmentCache
    from matrix.events import Emit
    from matrix.model import Request, Scenario
    from matrix.search.axes import Axis
    from matrix.search.bisection import Bisection
    from matrix.store import Records

    Show = Callable[[EnvironmentCache, int | None], AbstractContextManager[Emit]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is searched, for what, and what it may cost."""

    home: Path
    file: MatrixFile  # whose axes name one build, Python and config, and the versions to search
    scenario: Scenario
    variant: dict[str, str]
    good: str | None = None  # bounds: values of the axis
    bad: str | None = None
    options: Options = field(default_factory=Options)
    asked: evidence.Options = field(default_factory=evidence.Options)
    any_failure: bool = False
    budget: Budget = field(default_factory=Budget)
    jobs: int = 1
    fresh: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What probes need, open for one search."""

    cache: EnvironmentCache
    records: Records
    prober: Prober
    emit: Emit
    installs: Callable[[], int]


@contextmanager
def workbench(question: Question, cache: EnvironmentCache, show: Show) -> Iterator[Workbench]:
    """Open a run, its progress and what answers signals; count the installs."""
    records = store.Records() if question.fresh else store.read_records(question.home)
    installed: list[str] = []
    guard = threading.Lock()
    with opened_run(question.home) as run_store, show(cache, None) as emit:

        def staged(label: str, stage: str) -> None:
            if stage == "installing":
                with guard:
                    installed.append(label)
            emit(EnvironmentStage(label=label, stage=stage))

        cache.progress = staged
        prober = Prober(cache=cache, records=records, store=run_store, emit=emit)
        try:
            with answering(prober.attempts, emit):
                yield Workbench(cache=cache, records=records, prober=prober, emit=emit, installs=lambda: len(installed))
        finally:
            prober.close()


def bisect(question: Question, cache: EnvironmentCache, show: Show) -> Bisection:
    """Search the versions that the question's matrix file names.

    Raises UsageError or PreventedError where there is nothing to search; KeyboardInterrupt passes through.
    """
    expansion = config.expand(question.file, cache=question.home / "cache")
    usable = tuple(request for request in expansion.requests if request.problem is None)
    axis = Versions(usable)
    check_range(axis, expansion.requests)
    with workbench(question, cache, show) as bench:
        found = _bisector(question, axis, bench).run()
    return found.model_copy(update={"common": _common(usable[0])})


def _bisector(question: Question, axis: Axis, bench: Workbench) -> Bisector:
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


def _common(request: Request) -> dict[str, str]:
    """Return what all the environments of a search share."""
    return {"build": request.build.name, "python": request.python, "config": request.config.name}
