"""Run one script in environments and variations of it, each run through the same attempt as a cell of a matrix."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from whichtorch.matrix.process.forking_executor import BRIEF_EXIT
from whichtorch.matrix.process.temporary_folders import temporary_folder
from whichtorch.matrix.run.attempt import once_more
from whichtorch.matrix.run.attempt_request import AttemptRequest
from whichtorch.matrix.run.cache_chain import run_chain
from whichtorch.matrix.run.signals import Lookout
from whichtorch.matrix.run.test_session import read_session
from whichtorch.matrix.search.worker_pool import WorkerPool
from whichtorch.matrix.suite.companions import companions_of, copy_companions
from whichtorch.matrix.trial.observation import Observation, text_of
from whichtorch.matrix.trial.overlays import overlays_below
from whichtorch.matrix.trial.variation import NOTES, PLAIN, Variation

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable

    from whichtorch.matrix.model import Environment
    from whichtorch.matrix.plan.planning import PlannedCell
    from whichtorch.matrix.process.executor import Executor
    from whichtorch.matrix.records.store import RunStore
    from whichtorch.matrix.run.site import LocalSite
    from whichtorch.matrix.trial.overlays import Overlays
    from whichtorch.matrix.trial.remote import RemoteTrials

Result = TypeVar("Result")

MOST_NOTED = 50_000_000  # bytes of a file of notes; a larger one, such as a long trace, is left out


@dataclass(kw_only=True)
class Runner:
    """Where the runs of one test are made."""

    planned: PlannedCell  # script, variant, and the limits of a run
    environment: Environment
    executor: Executor
    forking: Executor | None = None  # the same, with processes that have imported torch
    home: Path
    store: RunStore
    beside: Path = field(default_factory=Path.cwd)  # the folder that the user started the script in
    caches: Path | None = None  # of compilers, for runs that may share them
    forks: bool = False  # a forked run was seen to show what a cold one shows
    tell: Callable[[str], None] = lambda _: None
    lookout: Lookout = field(default_factory=lambda: Lookout(tuple))
    cancelled: threading.Event | None = None  # ends a run once it is set
    remote: RemoteTrials | None = None  # makes the runs on other machines, which have the environments; None: this one
    cut_off: str = ""  # how long the run took that was interrupted, and where it was, in words

    @classmethod
    def of_site(cls, site: LocalSite, planned: PlannedCell, environment: Environment, **more: Any) -> Runner:
        """Return what runs a test on this machine as a site there runs its cells; `more` are other fields."""
        given = {"executor": site.executor, "forking": site.forking, "home": site.environments.home} | more
        return cls(planned=planned, environment=environment, store=site.store, **given)

    @property
    def overlays(self) -> Overlays:
        """Where environments with other files are laid."""
        return overlays_below(self.home)

    @cached_property
    def companions(self) -> dict[str, Path]:
        """What the script needs beside itself."""
        scenario = self.planned.scenario
        return companions_of(scenario, scenario.folder or self.beside)

    def at(self, environment: Environment) -> Runner:
        """Return where the same test runs in another environment."""
        return replace(self, environment=environment)

    def run(self, limit: float, variation: Variation = PLAIN) -> Observation:
        """Run the script once, for so many seconds.

        Raises KeyboardInterrupt where it was interrupted, PreventedError where no worker of a cluster can make the run.
        """
        if self.remote is not None:
            remote = self.remote
            return self._told_if_stopped(self.environment, lambda: remote.run(self, limit, variation))
        with ExitStack() as held:
            workshop = held.enter_context(temporary_folder())
            notes = workshop / "notes"
            notes.mkdir()
            planned, folder = self.planned, None
            if variation.in_scratch or variation.source is not None:
                folder = workshop / "work"
                planned = self._in_scratch(planned, variation, folder, notes)
            env = variation.environ(str(notes)) | ({BRIEF_EXIT: "1"} if variation.is_brief else {})
            planned = planned.configured(env, list(variation.hooks))
            environment = self.environment
            if variation.files:
                environment = held.enter_context(self.overlays.laid(environment, variation.files))
            planned = replace(planned, options=replace(planned.options, in_search=not variation.names_cache))
            may_fork = variation.may_fork and self.forks and planned.chain is None
            order = AttemptRequest(
                limit=limit,
                goal=variation.goal,
                folder=folder,
                notes=notes,
                is_measured="note_numbers" in variation.hooks,
                arguments=tuple(argument.replace(NOTES, str(notes)) for argument in variation.arguments),
                caches=self.caches if may_fork else None,
                hung_before=lambda signature: signature == variation.hung_at,
                cancelled=self.cancelled,
            )
            executor = self.forking if may_fork and self.forking else self.executor
            record = self._told_if_stopped(
                environment,
                lambda: once_more(lambda: run_chain(planned, environment, order, executor, self.home, self.store)),
            )
            texts = {
                str(path.relative_to(notes)): text_of(path)
                for path in sorted(notes.rglob("*"))
                if path.is_file() and path.stat().st_size <= MOST_NOTED
            }
        stderr = self.home / record.attempt.stderr
        command = planned.scenario.command
        session = read_session(stderr.parent) if command else None
        told = session.traceback_of(command.test) if session and command else ""
        return Observation(record=record, stderr=text_of(stderr) + told, notes=texts)

    def workers(self, count: int) -> WorkerPool:
        """Return where so many runs may be made at once; an interrupt there stops them all."""

        def stop() -> None:
            for executor in filter(None, (self.executor, self.forking)):
                executor.interrupt()
            if self.remote is not None:
                self.remote.interrupt()

        return WorkerPool(count, stop)

    def _told_if_stopped(self, environment: Environment, run: Callable[[], Result | None]) -> Result:
        """Return the result of a run; where it is interrupted, tell the user where it was."""
        begun, result = time.monotonic(), None
        try:
            result = run()
        finally:
            if result is None:
                name = f"{self.planned.name}  {environment.label}"
                self.cut_off = self.lookout.cut_off(name, begun)
                self.tell(f"{name} was stopped: {self.cut_off}")
        if result is None:
            raise KeyboardInterrupt
        return result

    def _in_scratch(self, planned: PlannedCell, variation: Variation, folder: Path, notes: Path) -> PlannedCell:
        """Return the cell with its script in a folder of its own, which is its home as well."""
        folder.mkdir()
        if not variation.is_alone:
            copy_companions(self.companions, folder)
        script, source = folder / f"{planned.scenario.path.stem}.py", variation.source
        if source is None:
            script.write_bytes(planned.scenario.path.read_bytes())
        else:
            script.write_text(source.replace(NOTES, str(notes)), encoding="utf-8")
        scenario = planned.scenario.model_copy(update={"path": script, "command": None})
        return replace(planned, scenario=scenario).configured({"HOME": str(folder)})
