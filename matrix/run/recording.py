"""Run cells through the pipeline, in one or several steps, and keep them in one stored run."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from matrix.process.executor import LocalExecutor
from matrix.process.marks import owner_is_dead, state_id, sweep
from matrix.records import store
from matrix.run.pipeline import MatrixRun
from matrix.run.signals import answering
from matrix.run.site import LocalSite

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matrix.environments.provider import Environments
    from matrix.events import Show
    from matrix.model import Cell, Environment
    from matrix.plan.planning import PlannedCell
    from matrix.records.store import Records, RunStore


class RecordedRun:
    """One stored run, made of as many steps as it takes."""

    def __init__(self, environments: Environments, records: Records, run_store: RunStore, show: Show) -> None:
        self._environments, self._records, self.store, self._show = environments, records, run_store, show

    def run(self, planned: Sequence[PlannedCell], jobs: int = 1, waiting: int = 0) -> MatrixRun:
        """Run cells to their end, or until the user interrupts; what is done is kept."""
        with self._show(len(planned)) as emit:
            executor = LocalExecutor()
            site = LocalSite(self._environments, executor, self._records, self.store, emit, jobs=jobs, waiting=waiting)
            step = MatrixRun(planned, site, self.store, emit)
            with answering(lambda: site.running, emit):
                step.run()
        return step

    def __call__(self, planned: Sequence[PlannedCell], jobs: int = 1) -> tuple[Sequence[Environment], Sequence[Cell]]:
        """Run cells to their end; raise KeyboardInterrupt where the user stopped them, with what is done kept."""
        step = self.run(planned, jobs)
        if step.is_interrupted:
            raise KeyboardInterrupt
        return step.environments, step.cells


@contextmanager
def recorded_run(environments: Environments, records: Records, show: Show, planned: int = 0) -> Iterator[RecordedRun]:
    """Open a stored run of its own."""
    with opened_run(environments.home, planned) as run_store:
        yield RecordedRun(environments, records, run_store, show)


@contextmanager
def opened_run(home: Path, planned: int = 0) -> Iterator[RunStore]:
    """Open a stored run, after ending what a killed tool has left behind; at the end it knows how long it took."""
    started = time.monotonic()
    ours = state_id(home)
    sweep(lambda mark: mark.startswith(ours) and owner_is_dead(mark))
    with store.new_run(home, tuple(sys.argv[1:]), planned) as run_store:
        interrupted = False
        try:
            yield run_store
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            run = run_store.run
            seconds = round(time.monotonic() - started, 3)
            run_store.finish(run.model_copy(update={"seconds": seconds, "interrupted": interrupted or run.interrupted}))
