"""The workers of a cluster as a place where cells run: batches are sent to them, and what comes back is kept here.

The client is the only writer of the run.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from whichtorch.base.atomic_files import read_json, write_atomic
from whichtorch.base.errors import PreventedError, UsageError
from whichtorch.environments.cache import UNMEASURED_INSTALL, EnvironmentCache
from whichtorch.environments.index.sources import local_folder
from whichtorch.matrix.cluster.engine import Cancel, Member, first_line
from whichtorch.matrix.cluster.wire import (
    BatchRequest,
    Delivery,
    OrderedCell,
    Parcel,
    ScriptFiles,
    SharedLock,
    WorkerEvent,
    code_version,
    decoded,
)
from whichtorch.matrix.judgement import counting
from whichtorch.matrix.options import RunOptions
from whichtorch.matrix.work import Batch, BatchResult, Done, Site, UndeliveredError, Worker, WorkerLostError
from whichtorch.model import Environment, Model, Request, digest
from whichtorch.records.line_index import Records, identity

if TYPE_CHECKING:
    from whichtorch.environments.provider import Stage
    from whichtorch.matrix.cluster.engine import DaskEngine
    from whichtorch.matrix.planning import PlannedCell
    from whichtorch.matrix.work import Machine
    from whichtorch.model import Record
    from whichtorch.model.events import Emit
    from whichtorch.records.store import RunStore


class _MadeEnvironment(Model):
    """What is kept of an environment that a worker made."""

    environment: Environment
    requires: dict[str, tuple[str, ...]]  # by package, what its metadata requires


class KnownEnvironments:
    """The environments that workers have made for this state folder."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._cache = EnvironmentCache(home)

    def known(self, request: Request) -> Environment | None:
        """Return the environment that a worker made, None where none did."""
        made = self._made(request)
        return made.environment if made else None

    def remember(self, request: Request, environment: Environment, requires: dict[str, tuple[str, ...]]) -> None:
        """Keep what a worker made, and what its packages require."""
        made = _MadeEnvironment(environment=environment, requires=requires)
        write_atomic(self._file(request), made.model_dump_json())

    def is_installed(self, request: Request) -> bool:
        """Return whether a worker has made it."""
        return self.known(request) is not None

    def typical_install(self) -> float:
        """Return the seconds that an install takes, as far as one can know."""
        return UNMEASURED_INSTALL

    def unreachable_index(self, request: Request) -> str | None:
        """Return the unreachable index this request needs, if any."""
        return self._cache.unreachable_index(request)

    def requirements_of(self, request: Request) -> dict[str, tuple[str, ...]]:
        """Return by package what its metadata requires, for an environment that a worker made."""
        made = self._made(request)
        return made.requires if made else {}

    def acquire(
        self, request: Request, cancelled: threading.Event | None = None, stage: Stage | None = None
    ) -> Environment:
        """Return what a request comes to that cannot be made anywhere."""
        if request.problem is None:
            raise PreventedError(f"{request.label} is made by workers only")
        return self._cache.acquire(request, cancelled, stage)

    def release(self, request: Request) -> None:
        """Do nothing: the environment is a worker's."""

    def _made(self, request: Request) -> _MadeEnvironment | None:
        if request.problem is not None:
            return None
        return read_json(self._file(request), _MadeEnvironment)

    def _file(self, request: Request) -> Path:
        return self.home / "cache" / "cluster" / f"{digest(request.key, 20)}.json"


class ClusterSite(Site):
    """The workers of a cluster."""

    environments: KnownEnvironments

    def __init__(self, machines: ClusterMachines, records: Records, store: RunStore, emit: Emit) -> None:
        super().__init__(machines.environments, records, store, emit)
        self._machines, self._engine = machines, machines.engine
        self.address = machines.engine.address
        self.batch_seconds, self.most_batches = machines.batch_seconds, machines.jobs
        self._sent: dict[str, tuple[Cancel, Done]] = {}  # batches that are awaited, by their ids
        self._scripts: dict[str, ScriptFiles] = {}  # by source hash
        self._locks: dict[tuple[str, ...], SharedLock | None] = {}  # by the request's key

    def running_lines(self) -> Sequence[str]:
        """Return for each attempt that runs now how long it has run, where it is, and on which worker."""
        return self._engine.running_lines()

    def check(self, request: Request) -> None:
        """Raise UsageError or PreventedError for what no worker can make or run."""
        self._machines.check([request])

    def workers(self) -> Sequence[Member]:
        """Return the workers that are there now. Raises PreventedError where the scheduler has gone."""
        return self._machines.members()

    def start(self, batch: Batch, worker: Worker, done: Done) -> None:
        """Send a batch."""

        def arrived(came: bytes | Exception) -> None:
            done(partial(self._result, batch, worker, came))

        order = self._order(batch).model_dump_json(by_alias=True).encode()
        self._sent[batch.id] = self._engine.send(order, batch.id, worker.address, arrived), done

    def cancel(self, batch: Batch) -> None:
        """Have a batch end soon. Its worker answers no more, and keeps what is done of it."""
        cancel, done = self._sent.pop(batch.id)
        try:
            cancel()
        finally:
            done(BatchResult)

    def hear(self, host: str, events: Iterable[WorkerEvent]) -> None:
        """Tell what happens on a worker."""
        for event in events:
            self.emit(decoded(event, host))

    def _order(self, batch: Batch) -> BatchRequest:
        cells = batch.cells.values()
        for cell in cells:
            if cell.scenario.source_hash not in self._scripts:
                self._scripts[cell.scenario.source_hash] = ScriptFiles.of(cell.scenario, self.environments.home)
        return BatchRequest(
            id=batch.id,
            run=self.store.run.id,
            request=batch.request,
            options=next((cell.options for cell in cells), RunOptions()),
            cells=tuple(
                OrderedCell(
                    position=position,
                    source_hash=cell.scenario.source_hash,
                    variant=cell.variant,
                    only=cell.scenario.only,
                )
                for position, cell in batch.cells.items()
            ),
            fork_levels=tuple(batch.fork_levels),
            trial=batch.trial if cells else None,
            scripts=tuple(self._scripts[each] for each in dict.fromkeys(cell.scenario.source_hash for cell in cells)),
            known=bearing_on(cells, batch.environment, self.records) if batch.environment and not batch.trial else (),
            lock=self._locks.get(batch.request.key),
        )

    def _result(self, batch: Batch, worker: Worker, came: bytes | Exception) -> BatchResult:
        """Return what came of a batch, with its new records kept in this run."""
        self._sent.pop(batch.id, None)
        if isinstance(came, UndeliveredError):
            raise came
        assert worker.machine is not None
        host = worker.machine.host
        if isinstance(came, Exception):
            raise WorkerLostError(f"{host}: {first_line(came)}") from came
        with closing(Parcel(came)) as parcel:
            delivery = Delivery.model_validate_json(parcel.delivery)
            self.hear(worker.name, delivery.events)
            environment = delivery.environment
            if environment is None:
                return BatchResult(left=list(batch.cells))
            if not batch.cells:
                self._locks[batch.request.key] = delivery.lock
            if not environment.is_usable:
                where = {"reason": f"{environment.reason} (on {host})", "log": None}
                return BatchResult(environment=environment.model_copy(update=where), left=list(batch.cells))
            if not batch.cells:
                self.environments.remember(batch.request, environment, delivery.requires)
            kept = self._kept if batch.trial is None else self._moved
            ends = [end.with_records(lambda record: kept(record, parcel)) for end in delivery.ends]
        ended = {end.position for end in ends}
        return BatchResult(environment=environment, ends=ends, left=[each for each in batch.cells if each not in ended])

    def _kept(self, record: Record, parcel: Parcel) -> Record:
        """Return a record as this machine has it; a new one is written to the run, with its files."""
        known = {identity(each): each for each in self.records.of(record.key)}
        if (mine := known.get(identity(record))) is not None:
            return mine
        record = self._moved(record, parcel)
        self.store.add_record(record)
        self.records.add(record)
        return record

    def _moved(self, record: Record, parcel: Parcel) -> Record:
        """Return a record with its files in this run. A trial's record is not stored, because its script was varied."""
        return parcel.moved(record, self.store)


def bearing_on(cells: Iterable[PlannedCell], environment: Environment, records: Records) -> tuple[Record, ...]:
    """Return the records that a worker needs for cells, without what only people read."""
    chosen: dict[tuple[object, ...], Record] = {}
    for cell in cells:
        key = cell.key(environment)
        bearing = records.bearing_on(environment.id, cell.scenario, cell.variant, cell.request.hardware_name)
        own = counting(cell, [record for record in bearing if record.key == key], environment)
        counted = set(map(identity, own))
        chosen |= {identity(each): each for each in bearing if each.key != key or identity(each) in counted}
        tests = records.of_tests(cell.scenario, cell.variant)
        chosen |= {identity(each): each for each in tests if each.environment == environment.id}
    return tuple(map(_brief, chosen.values()))


def _brief(record: Record) -> Record:
    evidence = record.attempt.evidence
    kept = {name: getattr(evidence, name) for name in evidence.model_fields_set - {"samples", "stall", "observed"}}
    attempt = record.attempt.model_copy(update={"diagnosis": None, "evidence": type(evidence)(**kept)})
    return record.model_copy(update={"attempt": attempt})


BATCH_SECONDS = 60.0  # of cells in a batch: what a lost worker costs at most, beside the cell that it ran
_LOCAL_PIN = "@ file:"  # in a line of a lock: the package is a file on a disk
FRESHNESS = 1.0  # seconds for which the list of workers is believed; one that has gone fails what it is sent


class ClusterMachines:
    """The workers of a scheduler as the commands on a state folder use them."""

    def __init__(
        self, engine: DaskEngine, home: Path, jobs: int | None = None, batch_seconds: float = BATCH_SECONDS
    ) -> None:
        self.engine, self.environments, self.batch_seconds = engine, KnownEnvironments(home), batch_seconds
        self.jobs = jobs  # batches at once, None for as many as there are slots
        self._listed: tuple[float, Sequence[Member]] = (0.0, ())

    def members(self) -> list[Member]:
        """Return the workers that have this program's version. Raises PreventedError where the scheduler has gone."""
        return [member for member in self._all() if member.facts.code == code_version()]

    @property
    def slots(self) -> int:
        """How many cells a search had better try at once: by default as many as each host has slots and cores for."""
        by_host: Counter[Machine] = Counter()
        for member in self.members():
            by_host[member.facts.machine] += member.facts.slots
        if self.jobs is not None:
            return min(by_host.total(), self.jobs)
        return sum(min(slots, machine.cores or slots) for machine, slots in by_host.items())

    def remarks(self) -> list[str]:
        """Return a line for each worker that gets no work, or that cannot tell where a hang is stuck."""
        blind = [member for member in self.members() if member.facts.ptrace]
        return [
            *self.misfits(),
            *(f"hangs on {member.name} are told without stacks: {member.facts.ptrace}" for member in blind),
        ]

    def misfits(self) -> list[str]:
        """Return a line for each worker of another version: it gets no work."""
        others = [member for member in self._all() if member.facts.code != code_version()]
        return [
            f"no work for {member.facts.machine.host}: it has whichtorch {member.facts.code}, here is {code_version()}"
            for member in others
        ]

    def check(self, requests: Sequence[Request]) -> None:
        """Raise UsageError for what lies on this machine only, PreventedError for what no worker can run."""
        for request in requests:
            folder = request.build.find_links
            wheel = request.torch if request.torch.endswith(".whl") else ""
            wheel = next((f"the project {project.name}" for project in request.projects), wheel)
            if request.interpreter is not None:
                hint = "leave out --executor, or name a release with --torch"
                raise UsageError(f"{request.interpreter} is on this machine, and workers are not", hint=hint)
            pinned = next((line for line in request.lock if _LOCAL_PIN in line), "")
            if wheel or pinned or (folder and local_folder(folder) is not None):
                hint = "leave out --executor, or serve the wheels from an index that the workers reach"
                raise UsageError(f"{wheel or pinned or folder} is on this machine, and workers are not", hint=hint)
        members = self.members()
        if not members:
            hint = "; ".join(self.misfits()) or f"start one with: whichtorch worker {self.engine.address}"
            raise PreventedError(f"no worker at {self.engine.address} can take work", hint=hint)
        for hardware in {request.hardware_name: request.hardware for request in requests}.values():
            lacks = [(each.facts.machine.host, each.facts.machine.lack(hardware)) for each in members if hardware]
            if hardware is not None and all(lack for _, lack in lacks):
                told = "; ".join(dict.fromkeys(f"{host}: {lack}" for host, lack in lacks))
                raise PreventedError(f"no worker is of the hardware {hardware.name}", hint=told)

    def install_cost(self, _requests: Sequence[Request]) -> tuple[int, float]:
        """Return nothing: workers install."""
        return 0, 0.0

    @contextmanager
    def site(self, records: Records, store: RunStore, emit: Emit) -> Iterator[ClusterSite]:
        """Open them as a place where cells run."""
        site = ClusterSite(self, records, store, emit)
        self.engine.follow(store.run.id, site.hear)
        yield site

    def _all(self) -> Sequence[Member]:
        listed_at, members = self._listed
        if time.monotonic() - listed_at > FRESHNESS:
            members = self.engine.members()
            self._listed = time.monotonic(), members
        return members
