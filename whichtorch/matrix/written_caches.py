"""Caches that the first runs of chains have written, for runs in other environments."""

from __future__ import annotations

import shutil
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from whichtorch.model import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from whichtorch.environments.provider import Environments
    from whichtorch.matrix.cached_files import SharedFolder
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.model import Environment, Record, Request

_WRITTEN = "written"  # the copy of what the runs share as the first one has left it


@dataclass(slots=True)
class FirstRun:
    """The first run of chains, and what it has left for others."""

    place: SharedFolder
    lock: threading.Lock = field(default_factory=threading.Lock)  # held by the one chain that uses the place
    record: Record | None = None

    def first_run(self, make: Callable[[], Record | None]) -> Record | None:
        """Return the record of the first run, and restore its caches; make the run now if there is no usable record."""
        if self.record is not None and self.record.attempt.outcome not in {Outcome.SLOW, Outcome.ERROR}:
            self.place.restore(_WRITTEN)
            return self.record
        self.place.make()
        self.record = make()
        self.place.keep(_WRITTEN)
        self.place.without_headers(_WRITTEN)
        return self.record


@dataclass(slots=True)
class WrittenCaches:
    """First runs that chains in other environments go on from. Each is made once, and its caches are kept."""

    environments: Environments
    stage: Callable[[str, str], None]  # told the label of an environment, and what is done to it
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _made: dict[tuple[object, ...], FirstRun] = field(default_factory=dict)

    @contextmanager
    def lent(self, writer: Request, planned: PlannedCell, own: SharedFolder) -> Iterator[FirstRun]:
        """Lend the first run of a cell to one chain at a time. It lies beside the `own` folder of the first one."""
        key = writer.key, planned.scenario.source_hash, planned.name
        with self._guard:
            beside = replace(own, place=own.place.with_suffix(".written"))
            written = self._made.setdefault(key, FirstRun(beside))
        with written.lock:
            try:
                yield written
            finally:
                written.place.clear()

    @contextmanager
    def environment(self, request: Request, cancelled: threading.Event | None) -> Iterator[Environment]:
        """Lend the environment of a first run."""
        environment = self.environments.acquire(request, cancelled, partial(self.stage, request.label))
        try:
            yield environment
        finally:
            if environment.is_usable:
                self.environments.release(request)

    def remove(self) -> None:
        """Remove all that was kept."""
        for written in self._made.values():
            shutil.rmtree(written.place.place, ignore_errors=True)
