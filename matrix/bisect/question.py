"""What a user asks of a search, and the workbench on which it is answered: records, a run, progress, probes."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from matrix.bisect.budget import Budget
from matrix.bisect.prober import Prober
from matrix.bisect.strategy import evidence
from matrix.events import EnvironmentStage, Show
from matrix.plan.planning import PlannedCell, RunOptions
from matrix.records import store
from matrix.run.pipeline import opened_run
from matrix.run.signals import answering

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from matrix.environments.provider import Environments
    from matrix.events import Emit, Event
    from matrix.model import Request, Scenario
    from matrix.plan.matrix_file import MatrixFile
    from matrix.records.store import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuestion:
    """What is searched, for what, and what it may cost."""

    home: Path
    file: MatrixFile  # whose axes name one build, Python and config, and the versions to search
    scenario: Scenario
    variant: dict[str, str]
    good: str | None = None  # bounds: values of the axis
    bad: str | None = None
    options: RunOptions = field(default_factory=RunOptions)
    asked: evidence.SearchOptions = field(default_factory=evidence.SearchOptions)
    any_failure: bool = False
    budget: Budget = field(default_factory=Budget)
    jobs: int = 1
    fresh: bool = False

    def planned(self, request: Request, **options: object) -> PlannedCell:
        """Return the test in an environment, with some of the options of its attempts replaced."""
        return PlannedCell(
            request=request,
            scenario=self.scenario,
            variant=self.variant,
            options=replace(self.options, **options),  # type: ignore[arg-type]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Workbench:
    """What probes need, open for one search."""

    cache: Environments
    records: Records
    prober: Prober
    emit: Emit
    installs: Callable[[], int]


@contextmanager
def workbench(question: SearchQuestion, cache: Environments, show: Show) -> Iterator[Workbench]:
    """Open a run, its progress and what answers signals; count the installs and the builds."""
    records = store.Records() if question.fresh else store.read_records(question.home)
    installed: list[str] = []
    guard = threading.Lock()
    with opened_run(question.home) as run_store, show(None) as progress:

        def emit(event: Event) -> None:
            if isinstance(event, EnvironmentStage) and event.stage in {"installing", "building"}:
                with guard:
                    installed.append(event.label)
            progress(event)

        prober = Prober(cache=cache, records=records, store=run_store, emit=emit)
        try:
            with answering(prober.attempts, emit):
                yield Workbench(cache=cache, records=records, prober=prober, emit=emit, installs=lambda: len(installed))
        finally:
            prober.close()
