"""Run one script in environments and variations of it, each run through the same attempt as a cell of a matrix."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import text_of
from whichtorch.base.errors import GOES_ON, PreventedError
from whichtorch.matrix.test_session import read_session
from whichtorch.matrix.variation import PLAIN, Observation, Variation
from whichtorch.search.worker_pool import WorkerPool
from whichtorch.suite.companions import companions_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from whichtorch.matrix.lab import Lab
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.model import Environment


@dataclass(kw_only=True)
class Runner:
    """Where the runs of one test are made."""

    lab: Lab
    planned: PlannedCell  # script, variant, and the limits of a run
    environment: Environment
    beside: Path = field(default_factory=Path.cwd)  # the folder that the user started the script in
    forks: bool = False  # a forked run was seen to show what a cold one shows
    tell: Callable[[str], None] = lambda _: None
    cut_off: str = ""  # how long the run took that was interrupted, and where it was, in words

    @cached_property
    def companions(self) -> dict[str, Path]:
        """What the script needs beside itself."""
        scenario = self.planned.scenario
        return companions_of(scenario, scenario.folder or self.beside)

    def at(self, environment: Environment) -> Runner:
        """Return where the same test runs in another environment."""
        return replace(self, environment=environment)

    def run(self, limit: float, variation: Variation = PLAIN) -> Observation:
        """Run the script once, for so many seconds; raises as what `start` returns."""
        return self.start(limit, variation)()

    def start(self, limit: float, variation: Variation = PLAIN) -> Callable[[], Observation]:
        """Begin a run; return what waits for its end.

        That raises KeyboardInterrupt where it was interrupted, PreventedError where no worker can make the run.
        """
        lab, planned, environment, since = self.lab, self.planned, self.environment, time.monotonic()
        forks = variation.may_fork and self.forks
        changed = variation.model_copy(update={"limit": limit, "may_fork": forks, "beside": self.beside})
        order = lab.start(planned, environment, changed)

        def ended() -> Observation:
            came = None
            try:
                came = lab.ended(order)
            finally:
                if came is None or (came.end is None and (came.environment is None or came.environment.is_usable)):
                    name = f"{planned.name}  {environment.label}"
                    self.cut_off = lab.lookout.cut_off(name, since)
                    self.tell(f"{name} was stopped: {self.cut_off}")
            if came.environment is not None and not came.environment.is_usable:
                why = came.environment.reason or came.environment.outcome
                raise PreventedError(f"{environment.label} cannot be used: {why}", hint=GOES_ON)
            if came.end is None:
                raise KeyboardInterrupt
            if not came.end.records:
                raise PreventedError(f"{planned.name} in {environment.label}: {came.end.problem}", hint=GOES_ON)
            (record,) = came.end.records
            stderr, command = lab.home / record.attempt.stderr, planned.scenario.command
            session = read_session(stderr.parent) if command else None
            told = session.traceback_of(command.test) if session and command else ""
            return Observation(record=record, stderr=text_of(stderr) + told, notes=came.end.notes)

        return ended

    def workers(self, count: int) -> WorkerPool:
        """Return where so many runs may be made at once; an interrupt there stops them all."""
        return WorkerPool(count, self.lab.interrupt)
