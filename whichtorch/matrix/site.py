"""The machine that a command is given on, as a place where cells and trials run, batch by batch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import text_of
from whichtorch.environments.configs import cell_environ, recorded
from whichtorch.matrix.cell_runner import CellRunner, ReadyCell
from whichtorch.matrix.signals import running_lines
from whichtorch.matrix.variation import NOTES, AttemptRequest, Variation
from whichtorch.matrix.work import Batch, BatchResult, CellEnd, Done, Worker, check_hardware, fork_level
from whichtorch.process.executor import BRIEF_EXIT, ForkingExecutor, LocalExecutor, default_jobs
from whichtorch.process.marks import temporary_folder
from whichtorch.process.script_reading import read_script
from whichtorch.suite.companions import companions_of, copy_companions

if TYPE_CHECKING:
    from whichtorch.environments.cache import EnvironmentCache
    from whichtorch.environments.provider import Environments
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.model import Environment, Request
    from whichtorch.model.events import Emit
    from whichtorch.process.supervision import Supervised
    from whichtorch.records.line_index import Records
    from whichtorch.records.store import RunStore

MOST_NOTED = 50_000_000  # bytes of a file of notes; a larger one, such as a long trace, is left out
SERVERS_A_JOB = 2  # a job alternates between cells that need torch alone and cells that need its compiler
INSTALLS_AT_ONCE = 2  # one unpacks while another downloads; more only fight for the disk


@dataclass
class LocalSite(CellRunner):
    """The machine it runs on: `jobs` cells at once, and `waiting` more of those that are expected to hang."""

    jobs: int = 1
    waiting: int = 0

    @property
    def running(self) -> tuple[Supervised, ...]:
        """The attempts that run now."""
        return (*self.executor.running, *(self.forking.running if self.forking else ()))

    def running_lines(self) -> list[str]:
        """Return for each attempt that runs now how long it has run, and where it is."""
        return running_lines(self.running)

    def with_variables(self, request: Request, environment: Environment) -> Environment:
        """Return an environment with those variables that its cells run with and that are recorded."""
        if not environment.is_usable:
            return environment
        variables = recorded(cell_environ(request, environment, self.environments.home), request.config)
        return environment.model_copy(update={"variables": variables})

    def check(self, _request: Request) -> None:
        """Do nothing: what cannot be made here is seen when it is tried."""

    def workers(self) -> tuple[Worker]:
        """Return this machine."""
        return (Worker(slots=self.jobs, hang_slots=self.waiting, install_slots=INSTALLS_AT_ONCE),)

    def start(self, batch: Batch, _worker: Worker, done: Done) -> None:
        """Begin a batch in a thread of its own."""

        def work() -> None:
            try:
                result = self.run(batch)
            except BaseException as error:  # noqa: BLE001  raised again by the scheduler
                done(partial(_raise, error))
            else:
                done(lambda: result)

        threading.Thread(target=work, name=batch.id, daemon=True).start()

    def run(self, batch: Batch) -> BatchResult:
        """Run a batch to its end, or until it is cancelled.

        If it came without its environment, the caller must release that.
        """
        environment = batch.environment
        if environment is None:
            stage = partial(self._stage, batch.request.label)
            environment = self.environments.acquire(batch.request, batch.cancelled, stage)
            if batch.cancelled.is_set():
                if environment.is_usable:
                    self.environments.release(batch.request)
                return BatchResult()
        ends: list[CellEnd] = []
        for position, planned in batch.cells.items() if environment.is_usable else ():
            level = fork_level(planned, batch.fork_levels) if batch.fork_levels else ""
            ready = ReadyCell(position, planned, environment, batch.cancelled, fork_level=level)
            end = self._run(ready, batch.trial)
            if end is None:
                break
            ends.append(end)
        return BatchResult(environment=environment, ends=ends)

    def _run(self, ready: ReadyCell, trial: Variation | None) -> CellEnd | None:
        if trial is not None:
            return self._run_trial(ready, trial)
        command = ready.planned.scenario.command
        if command is None or command.test:
            return self.run_cell(ready)
        from whichtorch.matrix.command_cell import run_command_cell  # here: as for `attempt`

        return run_command_cell(self, ready)

    def _run_trial(self, ready: ReadyCell, variation: Variation) -> CellEnd | None:
        """Run a cell's script once, with what is changed.

        Return its record, which says nothing about the cell, and its notes; None where it was interrupted.
        """
        from whichtorch.environments.overlay import overlays_below  # here: most runs change nothing

        planned, environment = ready.planned, ready.environment
        with ExitStack() as held:
            workshop = held.enter_context(temporary_folder())
            notes = workshop / "notes"
            notes.mkdir()
            script = planned.scenario
            level = "" if script.command else read_script(script.path).level  # alike for all variations of its source
            may_fork = variation.may_fork and planned.chain is None and self.forking is not None
            folder = None
            if variation.in_scratch or variation.source is not None:
                folder = workshop / "work"
                planned = _in_scratch(planned, variation, folder, notes)
            env = variation.environ(str(notes)) | ({BRIEF_EXIT: "1"} if variation.is_brief else {})
            planned = planned.configured(env, list(variation.hooks))
            if variation.files:
                overlays = overlays_below(self.environments.home)
                environment = held.enter_context(overlays.laid(environment, variation.files))
            planned = replace(planned, options=replace(planned.options, in_search=not variation.names_cache))
            order = AttemptRequest(
                limit=variation.limit,
                goal=variation.goal,
                folder=folder,
                notes=notes,
                arguments=tuple(argument.replace(NOTES, str(notes)) for argument in variation.arguments),
                caches=self.caches if may_fork else None,
                fork_level=(level or "torch") if may_fork else "",
                hung_before=lambda signature: signature == variation.hung_at,
                cancelled=ready.cancelled,
            )
            record = self.attempt(planned, environment, order)
            texts = {
                str(path.relative_to(notes)): text_of(path)
                for path in sorted(notes.rglob("*"))
                if path.is_file() and path.stat().st_size <= MOST_NOTED
            }
        return CellEnd(position=ready.position, records=(record,), notes=texts) if record else None


def _in_scratch(planned: PlannedCell, variation: Variation, folder: Path, notes: Path) -> PlannedCell:
    """Return the cell with its script in a folder of its own, which is its home as well."""
    folder.mkdir()
    scenario, source = planned.scenario, variation.source
    if not variation.is_alone:
        copy_companions(companions_of(scenario, scenario.folder or variation.beside or scenario.path.parent), folder)
    script = folder / f"{scenario.path.stem}.py"
    if source is None:
        script.write_bytes(scenario.path.read_bytes())
    else:
        script.write_text(source.replace(NOTES, str(notes)), encoding="utf-8")
    scenario = scenario.model_copy(update={"path": script, "command": None})
    return replace(planned, scenario=scenario).configured({"HOME": str(folder)})


def _raise(error: BaseException) -> BatchResult:
    raise error


@dataclass(frozen=True, slots=True, kw_only=True)
class ThisMachine:
    """The machine that a command is given on: `jobs` cells at once, and `waiting` more that are expected to hang."""

    environments: Environments
    jobs: int = 1
    waiting: int = 0
    expected_size: Callable[[Sequence[Request]], int] = lambda _: 0  # bytes, of installs

    @classmethod
    def of(cls, cache: EnvironmentCache, jobs: int | None = None) -> ThisMachine:
        """Return it with so many jobs, by default as many as fit it, and as many more that wait."""
        fitting = jobs or default_jobs()
        return cls(environments=cache, jobs=fitting, waiting=0 if jobs else fitting, expected_size=cache.expected_size)

    @property
    def slots(self) -> int:
        """How many cells run at once."""
        return self.jobs

    def check(self, requests: Sequence[Request]) -> None:
        """Raise PreventedError for a kind of hardware that this machine is not of."""
        check_hardware(requests)

    def install_cost(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return about how many bytes and seconds installs take, with the usual size and duration."""
        distinct = {request.install_key: request for request in requests}
        missing = [request for request in distinct.values() if not self.environments.is_installed(request)]
        if not missing:
            return 0, 0.0
        seconds = self.environments.typical_install() * len(missing) / min(INSTALLS_AT_ONCE, len(missing))
        return self.expected_size(missing), seconds

    @contextmanager
    def site(self, records: Records, store: RunStore, emit: Emit) -> Iterator[LocalSite]:
        """Open it as a place where cells run."""
        site = LocalSite(self.environments, records, store, emit, LocalExecutor(), self.jobs, self.waiting)
        with ForkingExecutor(SERVERS_A_JOB * self.jobs) as site.forking, temporary_folder() as site.caches:
            try:
                yield site
            finally:
                site.close()
