"""A search driven over fake environments: scripts end as a history says, and nothing is installed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fakes import PASSED, FakeCache, FakeExecutor, lab_of, shows_nothing
from whichtorch.bisect.bisection import Bisection
from whichtorch.bisect.driver import bisected
from whichtorch.bisect.ledger import Ledger
from whichtorch.bisect.search_request import Axis, AxisName, Budget, SearchRequest
from whichtorch.bisect.workbench import Workbench
from whichtorch.environments import matrix_file
from whichtorch.matrix.lab import Lab
from whichtorch.matrix.planning import PlannedCell
from whichtorch.matrix.site import LocalSite, ThisMachine
from whichtorch.model import Build, Config, Request, Scenario
from whichtorch.model.events import Emit, Event, ProbeChosen
from whichtorch.process.supervision import Ending, Task
from whichtorch.records.line_index import Records
from whichtorch.records.store import RunStore, new_run
from whichtorch.search.search_state import SearchOptions

STUCK = Ending(stopped_by="stall", exit_code=None, signal=None, seconds=4.0)
CRASHED = Ending(stopped_by="exit", exit_code=None, signal="SIGSEGV", seconds=1.0)
NOT_APPLICABLE = Ending(stopped_by="exit", exit_code=125, signal=None, seconds=1.0)
FAILED = Ending(stopped_by="exit", exit_code=1, signal=None, seconds=1.0)


@dataclass(frozen=True, slots=True)
class Raises:
    """A script that ends with an exception of its own."""

    exception: str

    @property
    def traceback(self) -> str:
        return f'Traceback (most recent call last):\n  File "repro.py", line 3, in <module>\n{self.exception}\n'


EndOfRun = Ending | Raises
Behaviour = Callable[[str, int, Task], EndOfRun | None]  # of a version, the number of its run there, and the task


def versions(number: int) -> tuple[str, ...]:
    """Return so many versions, oldest first."""
    return tuple(f"2.{minor}.0" for minor in range(number))


def as_listed(endings: Mapping[str, EndOfRun | Sequence[EndOfRun]], otherwise: EndOfRun = PASSED) -> Behaviour:
    """Return the behaviour by version: one ending, or one for each run, the last one for all further ones."""

    def behave(version: str, run: int, _task: Task) -> EndOfRun:
        ending = endings.get(version, otherwise)
        return ending[min(run, len(ending)) - 1] if isinstance(ending, Sequence) else ending

    return behave


def failing(bad: Sequence[str], ending: EndOfRun) -> Behaviour:
    """Return the behaviour of versions of which some fail, always and alike."""
    return as_listed(dict.fromkeys(bad, ending))


@dataclass
class Executor:
    """What probes run their attempts with; a probe that is cancelled ends."""

    releases: FakeReleases
    running: tuple[Any, ...] = ()

    def run(self, task: Task, cancelled: threading.Event | None = None) -> Ending | None:
        cancelled = cancelled or threading.Event()
        return None if cancelled.is_set() else self.releases.end(task, cancelled)

    def interrupt(self) -> None:
        pass


@dataclass
class FakeReleases:
    """Releases of torch that behave as told, and a state folder in which searches of them follow each other."""

    home: Path
    behave: Behaviour = lambda _version, _run, _task: PASSED
    values: tuple[str, ...] = versions(8)
    missing: frozenset[str] = frozenset()
    fields: dict[str, Any] = field(default_factory=dict)  # of the scenario
    runs: Counter[str] = field(default_factory=Counter)  # started, by version
    tasks: list[Task] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    cache: FakeCache = field(init=False)
    waits: dict[str, threading.Event] = field(default_factory=dict)  # by version: for this, or until it is cancelled
    guard: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.cache = FakeCache(self.home, self.missing)

    @property
    def requests(self) -> list[Request]:
        build, config = Build(name="pypi"), Config(name="default")
        return [Request(torch=value, python="3.11", build=build, config=config) for value in self.values]

    @property
    def scenario(self) -> Scenario:
        path = self.home / "repro.py"
        path.touch()
        return Scenario(name="repro.py", path=path, source_hash="hash", **self.fields)

    def end(self, task: Task, cancelled: threading.Event) -> Ending | None:
        version = task.name.partition("torch-")[2].partition("-")[0]
        with self.guard:
            self.tasks.append(task)
            self.runs[version] += 1
            run = self.runs[version]
        if version in self.waits:
            while not (self.waits[version].wait(0.005) or cancelled.is_set()):
                pass
            if cancelled.is_set():
                return None
        ending = self.behave(version, run, task)
        if isinstance(ending, Raises):
            Path(task.stderr).write_text(ending.traceback)
            return FAILED
        return ending

    def search(
        self,
        goal: SearchOptions | None = None,
        *,
        failure: str = "",
        any_failure: bool = False,
        budget: Budget | None = None,
        jobs: int = 1,
        seconds: Callable[[], float] | None = None,
    ) -> Bisection:
        """Search as a new process would: what it knows comes from the records."""
        records = Records(self.home)
        before = len(self.cache.installed)
        request = SearchRequest(
            home=self.home,
            file=matrix_file.read_matrix_file(matrix_file.DEFAULT_FILE),
            scenario=self.scenario,
            variant={},
            failure=failure,
            any_failure=any_failure,
            budget=budget or Budget(),
            jobs=jobs,
        )
        with new_run(self.home, ()) as store:
            site = LocalSite(self.cache, records, store, self.events.append, Executor(self), jobs=jobs)
            bench = FakeBench(Lab(site, shows_nothing))
            bench.count, bench.clock = lambda: len(self.cache.installed) - before, seconds
            values = tuple(request.torch for request in self.requests)
            axis = Axis(name=AxisName.VERSION, values=values, requests=tuple(self.requests))
            ledger = Ledger(request=request, bench=bench, axis=axis, goal=goal or SearchOptions())
            return bisected(ledger)

    @property
    def chosen(self) -> list[ProbeChosen]:
        """What was told of the probes, in order."""
        return [event for event in self.events if isinstance(event, ProbeChosen)]


class FakeBench(Workbench):
    """A workbench that counts the installs of fake environments, with a clock that may be made up."""

    count: Callable[[], int]
    clock: Callable[[], float] | None = None

    @property
    def installs(self) -> int:
        return self.count()

    @property
    def seconds(self) -> float:
        return self.clock() if self.clock else super().seconds


class MadeUpBench(FakeBench):
    """Probes of which `behave` says how each run of what was requested ends."""

    def __init__(self, cache: FakeCache, run_store: RunStore, behave: Callable[[Request], Ending]) -> None:
        self.behave, self.count = behave, lambda: len(cache.acquired)
        self.requests: dict[str, Request] = {}  # by label
        executor = FakeExecutor(lambda task: behave(self.requests[task.name.rpartition("  ")[2]]))
        super().__init__(lab_of(cache, run_store, executor, jobs=1))

    def start(self, position: int, planned: Sequence[PlannedCell]) -> None:
        self.requests |= {cell.request.label: cell.request for cell in planned}
        super().start(position, planned)


@dataclass(frozen=True, kw_only=True)
class MadeUpMachine(ThisMachine):
    """A machine on which the label of an environment decides how a script ends there."""

    end: Callable[[str], Ending]

    @contextmanager
    def site(self, records: Records, store: RunStore, emit: Emit) -> Iterator[LocalSite]:
        executor = FakeExecutor(lambda task: self.end(task.name.rpartition("  ")[2]))
        yield LocalSite(self.environments, records, store, emit, executor)


def asked(cache: FakeCache, torch: str, end: Callable[[str], Ending], **fields: object) -> SearchRequest:
    """Return the request for a search with the wheels of torch beside the state, on a made-up machine."""
    path = cache.home / "repro.py"
    path.touch()
    builds = {"mine": {"find-links": str(cache.home / "wheels")}}
    return SearchRequest(
        home=cache.home,
        file=matrix_file.checked({"axes": {"torch": [torch], "build": ["mine"]}, "build": builds}, "a test"),
        scenario=Scenario(name="repro.py", path=path, source_hash="1", in_suite=False),
        variant={},
        machines=MadeUpMachine(environments=cache, end=end),
        **fields,  # type: ignore[arg-type]
    )
