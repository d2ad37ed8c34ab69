"""The work of a run, and who does it: what the scheduler of cells and the places where they run agree on.

A `Site` is a place with workers: this machine is one with a single worker, a cluster one with many.
"""

from __future__ import annotations

import platform
import subprocess
import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Protocol, Self

from pydantic import Field

from whichtorch.base.errors import PreventedError
from whichtorch.base.version_parsing import in_specifier
from whichtorch.inside import probe
from whichtorch.model import Environment, Hardware, Model, Record, Request
from whichtorch.process.executor import usable_cores
from whichtorch.process.script_reading import lower_level, read_script

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from whichtorch.environments.provider import Environments
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.matrix.variation import Variation
    from whichtorch.model.events import Emit
    from whichtorch.process.supervision import Supervised
    from whichtorch.records.line_index import Records
    from whichtorch.records.store import RunStore

MIN_CELLS_TO_FORK = 4  # cells of an environment that share imports; to make these takes longer than to start fewer cold
CELLS_READ = 200  # of an environment, for `fork_levels`; reading their scripts takes a tenth of a second

SMI_TIMEOUT = 20.0  # seconds: without the persistence daemon the driver is loaded first


def fork_level(cell: PlannedCell, made: Collection[str] | None = None) -> str:
    """Return what a cell's script may find imported, of the levels that are `made`; "" where it has to start cold."""
    level = read_script(cell.scenario.path).level if cell.forks else ""
    while made is not None and level and level not in made:
        level = lower_level(level)
    return level


@dataclass(frozen=True, kw_only=True)
class EnvironmentWork:
    """The cells of one environment that are to be run, by their positions in the plan."""

    request: Request
    first: int  # position of the first of all its cells
    cells: Mapping[int, PlannedCell]
    environment: Environment | None = None  # that is held by whoever asks; None: it is made for the work
    trial: Variation | None = None  # made with each cell; None: the cells get the attempts that they need

    @property
    def is_lent(self) -> bool:
        """Whether the environment goes when the work is over; without cells, it is made for whoever asks."""
        return self.environment is None and bool(self.cells)

    @cached_property
    def fork_levels(self) -> frozenset[str]:
        """What may be imported once, ahead of cells: each level of imports that enough of them share.

        Where too few need a level, they share the one below it. The first cells stand for all: there may be a million
        of them, and each script has to be read.
        """
        counts = Counter(map(fork_level, islice(self.cells.values(), CELLS_READ)))
        made = set[str]()
        while level := max(counts, key=len, default=""):
            count = counts.pop(level)
            if count >= MIN_CELLS_TO_FORK:
                made.add(level)
            else:
                counts[lower_level(level)] += count
        return frozenset(made)


class CellEnd(Model):
    """What a cell rests on when nothing is left to run of it."""

    position: int  # in the plan
    records: tuple[Record, ...] = ()
    reused: int = 0  # of the records that judge: those that an earlier run made
    problem: str = ""  # what kept it from being run
    tests: dict[str, tuple[Record, ...]] = Field(default_factory=dict)  # of a command: the records of each test, by id
    notes: dict[str, str] = Field(default_factory=dict)  # of a trial: the texts that it wrote for us, by their paths

    @property
    def all_records(self) -> Iterator[Record]:
        """The records of the cell, then those of its tests."""
        yield from self.records
        for records in self.tests.values():
            yield from records

    def with_records(self, change: Callable[[Record], Record]) -> Self:
        """Return it with each record as `change` returns it."""
        tests = {id_: tuple(map(change, records)) for id_, records in self.tests.items()}
        return self.model_copy(update={"records": tuple(map(change, self.records)), "tests": tests})


class WorkListener(Protocol):
    """Receives an environment and the ends of its cells; the scheduler calls it in its own thread."""

    def acquired(self, work: EnvironmentWork, environment: Environment) -> Mapping[int, PlannedCell]:
        """Take an environment, and return the cells of the work that are to be run in it."""

    def ended(self, environment: Environment, end: CellEnd) -> None:
        """Take the end of a cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A machine with slots, as it is now. Each slot takes one batch at a time."""

    address: str = ""  # unique
    name: str = ""
    host: str = ""  # what workers share that have the same state folder
    machine: Machine | None = None  # None: whatever hardware is asked for was found here
    slots: int
    hang_slots: int = 0  # more of them, for cells that are expected to hang: these wait rather than work
    install_slots: int | None = None  # for environments that are made ready; None: they take the slots of cells
    installed: Collection[str] = ()  # install keys of environments that are there
    fetched: Collection[str] = ()  # those that were evicted since: their wheels are in a cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a worker is given at once: cells of one environment, in their order; without cells it is made ready."""

    id: str  # unique: what is sent again has another one
    request: Request
    environment: Environment | None = None  # None: not there yet
    cells: Mapping[int, PlannedCell] = field(default_factory=dict)
    trial: Variation | None = None  # as in `EnvironmentWork`
    fork_levels: Collection[str] = ()  # of imports, that fork servers make; a cell's first attempt may find one made
    cancelled: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """What came of a batch."""

    environment: Environment | None = None  # None: it was cancelled before the environment was there
    ends: Sequence[CellEnd] = ()
    left: Sequence[int] = ()  # cells that another worker is to run


Done = Callable[[Callable[[], BatchResult]], None]


class WorkerLostError(Exception):
    """A worker has gone, or failed, with a batch."""


class UndeliveredError(Exception):
    """A batch reached no worker: the one it was meant for had gone already."""


@dataclass
class Site(ABC):
    """A place where cells run. Its methods may be called from any thread."""

    environments: Environments
    records: Records  # of earlier runs; those of attempts made here are added
    store: RunStore
    emit: Emit  # where it tells what happens
    address = "this machine"  # what people call it
    batch_seconds = 0.0  # about how long the cells of a batch take; 0: a batch is one cell
    most_batches: int | None = field(default=None, init=False)  # at once, on all workers; None: one for each slot

    @property
    def running(self) -> Sequence[Supervised]:
        """The attempts that run now and can be looked at from here."""
        return ()

    @abstractmethod
    def running_lines(self) -> Sequence[str]:
        """Return for each attempt that runs now how long it has run, and where it is."""

    def with_variables(self, _request: Request, environment: Environment) -> Environment:
        """Return an environment with those variables that its cells run with and that are recorded."""
        return environment

    @abstractmethod
    def check(self, request: Request) -> None:
        """Raise UsageError or PreventedError for what no worker can make or run."""

    @abstractmethod
    def workers(self) -> Sequence[Worker]:
        """Return the workers that are there now. Raises PreventedError where they cannot be asked."""

    @abstractmethod
    def start(self, batch: Batch, worker: Worker, done: Done) -> None:
        """Begin a batch. Call `done` with what returns its result, or raises why there is none."""

    def cancel(self, batch: Batch) -> None:  # noqa: B027  its attempts may look at `Batch.cancelled`
        """Have a batch end soon; `done` is called then. What is done of it is kept."""


class Machines(Protocol):
    """The machines that a command uses: this one, or those of a cluster."""

    @property
    def environments(self) -> Environments:
        """What is known of environments, and what makes them."""

    @property
    def slots(self) -> int:
        """How many cells run at once."""

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UsageError for what these machines cannot make, PreventedError for what none of them can run."""

    def install_cost(self, requests: Sequence[Request]) -> tuple[int, float]:
        """Return about how many bytes and seconds it takes to install on this machine what is to run here."""

    def site(self, records: Records, store: RunStore, emit: Emit) -> AbstractContextManager[Site]:
        """Open them as a place where cells run."""


class Machine(Model):
    """What a machine says of itself."""

    host: str
    arch: str  # "x86_64"
    cores: int = 0  # that programs may use; 0: not known
    cpu: str = ""  # model
    gpus: tuple[str, ...] = ()  # models, as the driver names them
    driver: str = ""  # version of the GPUs' driver, "" where there is none

    def lack(self, hardware: Hardware) -> str:
        """Return what this machine has instead of what a kind of hardware asks for, "" where it is of that kind."""
        if hardware.gpu and not any(fnmatchcase(gpu, hardware.gpu) for gpu in self.gpus):
            return f"its GPUs are {', '.join(sorted(set(self.gpus)))}" if self.gpus else "it has no GPU"
        for name in ("arch", "cpu", "host"):
            pattern, value = getattr(hardware, name), getattr(self, name)
            if pattern and not fnmatchcase(value, pattern):
                return f"its {name} is {value or 'not known'}"
        if hardware.driver and not in_specifier(self.driver, hardware.driver, as_final=False):
            return f"its driver is {self.driver or 'not known'}"
        return ""


def check_hardware(requests: Iterable[Request]) -> None:
    """Raise PreventedError where this machine is not of a kind of hardware that is asked for."""
    for request in requests:
        if request.hardware is not None and (lack := this_machine().lack(request.hardware)):
            hint = "name a cluster that has such a machine with --executor"
            raise PreventedError(f"this machine is not of the hardware {request.hardware_name}: {lack}", hint=hint)


@lru_cache(maxsize=1)
def this_machine() -> Machine:
    """Return what the machine that this runs on says of itself."""
    gpus = _gpus_and_drivers()
    return Machine(
        host=platform.node(),
        arch=platform.machine(),
        cores=usable_cores(),
        cpu=str(probe.cpu()["model"]),
        gpus=tuple(name for name, _ in gpus),
        driver=gpus[0][1] if gpus else "",
    )


def _gpus_and_drivers() -> list[tuple[str, str]]:
    """Return model and driver of each NVIDIA GPU; none where there is no driver that answers."""
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=SMI_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.strip().partition(", ") for line in answer.stdout.splitlines() if line.strip())
    return [(name, driver) for name, _, driver in rows]
