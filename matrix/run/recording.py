"""Run a few cells at a time, through the same pipeline as `matrix`, and keep them in one run."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from matrix.process.marks import owner_is_dead, state_id, sweep
from matrix.records import store
from matrix.run.executor import LocalExecutor
from matrix.run.pipeline import MatrixRun
from matrix.run.signals import answering

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from matrix.environments.provider import Environments
    from matrix.events import Show
    from matrix.model import Cell, Environment
    from matrix.plan.planning import PlannedCell
    from matrix.records.store import Records, RunStore


class Lab:
    """One run, made of as many steps as it takes."""

    def __init__(
        self,
        cache: Environments,
        records: Records,
        run_store: RunStore,
        show: Show,
    ) -> None:
        self._cache, self._records, self._store, self._show = cache, records, run_store, show

    def __call__(self, planned: Sequence[PlannedCell], jobs: int = 1) -> tuple[Sequence[Environment], Sequence[Cell]]:
        """Run cells to their end; raises KeyboardInterrupt where the user stopped them, with what is done kept."""
        with self._show(len(planned)) as emit:
            executor = LocalExecutor()
            step = MatrixRun(
                planned,
                cache=self._cache,
                executor=executor,
                records=self._records,
                store=self._store,
                emit=emit,
            )
            with answering(lambda: executor.running, emit):
                step.run(jobs)
        if step.interrupted:
            raise KeyboardInterrupt
        return step.environments, step.cells


@contextmanager
def laboratory(
    home: Path,
    cache: Environments,
    records: Records,
    show: Show,
) -> Iterator[Lab]:
    """Open a run of its own for a lab."""
    with opened_run(home) as run_store:
        yield Lab(cache, records, run_store, show)


@contextmanager
def opened_run(home: Path) -> Iterator[RunStore]:
    """Open a run, after ending what a killed tool has left behind; at the end it knows how long it took."""
    started = time.monotonic()
    ours = state_id(home)
    sweep(lambda mark: mark.startswith(ours) and owner_is_dead(mark))
    with store.new_run(home, tuple(sys.argv[1:])) as run_store:
        interrupted = False
        try:
            yield run_store
        except KeyboardInterrupt:
            interrupted = True
            raise
        finally:
            seconds = round(time.monotonic() - started, 3)
            run_store.finish(run_store.run.model_copy(update={"seconds": seconds, "interrupted": interrupted}))
